"""A cell as a physical object. Knows no array."""

from xbar_jax.devices.ageing import Ageing, Drift
from xbar_jax.devices.cmo import CMO, CMOState
from xbar_jax.devices.constant_step import ConstantStep
from xbar_jax.devices.custom import Custom
from xbar_jax.devices.data_driven import DataDriven
from xbar_jax.devices.data_driven_2021 import DataDriven2021
from xbar_jax.devices.dynamic import DynamicDevice, DynamicState
from xbar_jax.devices.exp_step import ExpStep
from xbar_jax.devices.faults import Faulty, FaultyState, Stuck
from xbar_jax.devices.fitting import Fit, fit
from xbar_jax.devices.gaussian import Gaussian, GaussianState
from xbar_jax.devices.jart import JARTState, JARTv1b
from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.linear_step import LinearStep
from xbar_jax.devices.measured import IVCurve, PulseRamps, load_iv, load_ramps
from xbar_jax.devices.noisy_read import noisy_read
from xbar_jax.devices.one_sided import OneSided, OneSidedState
from xbar_jax.devices.pcm import PCM
from xbar_jax.devices.piecewise_step import PiecewiseStep
from xbar_jax.devices.pow_step import PowStep
from xbar_jax.devices.presets import presets
from xbar_jax.devices.programmed import ProgrammedDevice, ProgrammedState
from xbar_jax.devices.pulsed import Pulsed, PulsedState
from xbar_jax.devices.relaxation import Relaxation
from xbar_jax.devices.relaxation_fit import RelaxationData, fit_relaxation, load_relaxation
from xbar_jax.devices.response import pulse_response, saturating_exponential, saturating_exponential_inverse
from xbar_jax.devices.rram import RRAM, RRAMState
from xbar_jax.devices.sky130 import Sky130
from xbar_jax.devices.soft_bounds import SoftBounds, symmetry_point
from xbar_jax.devices.soft_bounds_reference import SoftBoundsReference
from xbar_jax.devices.spread import Spread
from xbar_jax.devices.stanford_pku import StanfordPKU
from xbar_jax.devices.state_independent import StateIndependent
from xbar_jax.devices.step import StepDevice, StepState
from xbar_jax.devices.tables import tabulate
from xbar_jax.devices.tabulated import Tabulated
from xbar_jax.devices.update import pulsed_update
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.waveforms import Applied, IVSweep, Waveform, apply, concatenate, ispp, iv_sweep, pulses, ramp
from xbar_jax.devices.yakopcic import Yakopcic
from xbar_jax.devices.yakopcic_general import YakopcicGeneral

__all__ = [
    "CMO",
    "PCM",
    "RRAM",
    "VTEAM",
    "Ageing",
    "Applied",
    "CMOState",
    "ConstantStep",
    "Custom",
    "DataDriven",
    "DataDriven2021",
    "Drift",
    "DynamicDevice",
    "DynamicState",
    "ExpStep",
    "Faulty",
    "FaultyState",
    "Fit",
    "Gaussian",
    "GaussianState",
    "IVCurve",
    "IVSweep",
    "JARTState",
    "JARTv1b",
    "LinearIonDrift",
    "LinearStep",
    "OneSided",
    "OneSidedState",
    "PiecewiseStep",
    "PowStep",
    "ProgrammedDevice",
    "ProgrammedState",
    "PulseRamps",
    "Pulsed",
    "PulsedState",
    "RRAMState",
    "Relaxation",
    "RelaxationData",
    "Sky130",
    "SoftBounds",
    "SoftBoundsReference",
    "Spread",
    "StanfordPKU",
    "StateIndependent",
    "StepDevice",
    "StepState",
    "Stuck",
    "Tabulated",
    "Waveform",
    "Yakopcic",
    "YakopcicGeneral",
    "apply",
    "concatenate",
    "fit",
    "fit_relaxation",
    "ispp",
    "iv_sweep",
    "load_iv",
    "load_ramps",
    "load_relaxation",
    "noisy_read",
    "presets",
    "pulse_response",
    "pulsed_update",
    "pulses",
    "ramp",
    "saturating_exponential",
    "saturating_exponential_inverse",
    "symmetry_point",
    "tabulate",
]
