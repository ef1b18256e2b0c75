"""Published devices, as numbers.

Each preset is one device with the parameters of its source. ``presets["ReRamES"]`` gives it; change a
number with ``.replace``. Steps and bounds are in units of the weight.
"""

from __future__ import annotations

from xbar_jax.devices.constant_step import ConstantStep
from xbar_jax.devices.exp_step import ExpStep
from xbar_jax.devices.linear_step import LinearStep
from xbar_jax.devices.one_sided import OneSided
from xbar_jax.devices.soft_bounds_reference import SoftBoundsReference
from xbar_jax.devices.step import StepDevice

presets: dict[str, StepDevice | OneSided] = {
    # Trench capacitor: Li et al., VLSI 2018.
    "Capacitor": LinearStep(
        dw_min=0.005, up_down_dtod=0.01, dw_min_dtod=0.1, dw_min_std=0.3, w_max=1.0, w_min=-1.0, w_max_dtod=0.05,
        w_min_dtod=0.05, gamma_up=0.05, gamma_down=0.05, gamma_up_dtod=0.05, gamma_down_dtod=0.05,
        lifetime=1e6, lifetime_dtod=0.3, reset_std=0.01,
    ),
    # Electrochemical RAM, Li-based: Tang et al., IEDM 2018.
    "EcRam": LinearStep(
        dw_min=0.002, up_down=0.1724, up_down_dtod=0.01, dw_min_dtod=0.1, dw_min_std=0.3, w_max=1.0, w_min=-1.0,
        w_max_dtod=0.05, w_min_dtod=0.05, gamma_up=0.1153, gamma_down=0.5085, gamma_up_dtod=0.05, gamma_down_dtod=0.05,
    ),
    # Electrochemical RAM, metal oxide: Kim et al., IEDM 2019.
    "EcRamMO": LinearStep(
        dw_min=2.8214e-4, up_down=0.1714, up_down_dtod=0.01, dw_min_dtod=0.1, dw_min_std=2.0, w_max=1.0, w_min=-1.0,
        w_max_dtod=0.05, w_min_dtod=0.05, gamma_up=0.4152, gamma_down=0.7342, gamma_up_dtod=0.05, gamma_down_dtod=0.05,
    ),
    # HfO2 resistive RAM, exponential step: Gong et al., Nat. Commun. 9, 2102 (2018).
    "ReRamES": ExpStep(
        dw_min=0.00135, up_down=0.259, up_down_dtod=0.01, dw_min_dtod=0.2, dw_min_std=5.0, w_max=1.0, w_min=-1.0,
        w_max_dtod=0.3, w_min_dtod=0.3, a=-0.5, b=-0.5, gamma_up=5.0, gamma_down=5.0, a_up=-1.18445, a_down=-0.081404,
        write_noise_std=75.0,
    ),
    # HfO2 resistive RAM, soft bounds about a reference device: Gong et al., 2018, fitted anew.
    "ReRamSB": SoftBoundsReference(
        dw_min=0.002, up_down=0.0, up_down_dtod=0.01, dw_min_dtod=0.1, dw_min_std=3.75, w_max=1.25, w_min=-0.75,
        w_max_dtod=0.05, w_min_dtod=0.05, write_noise_std=56.0, reference=0.0, reference_std=0.05,
    ),
    # Arrays of optimised resistive RAM: Gong et al., IEDM 2022.
    "ReRamArrayOM": SoftBoundsReference(
        dw_min=0.0949, dw_min_dtod=0.7829, log_normal=True, dw_min_std=0.4158, up_down=0.0, up_down_dtod=0.01, w_max=1.0,
        w_min=-1.0, w_max_dtod=0.3, w_min_dtod=0.3, write_noise_std=1.4113, reference_std=0.0,
        subtract_symmetry_point=True,
    ),
    "ReRamArrayHfO2": SoftBoundsReference(
        dw_min=0.4622, dw_min_dtod=0.7125, log_normal=True, dw_min_std=0.2174, up_down=0.0, up_down_dtod=0.01, w_max=1.0,
        w_min=-1.0, w_max_dtod=0.3, w_min_dtod=0.3, write_noise_std=0.5841, reference_std=0.0,
        subtract_symmetry_point=True,
    ),
    # The device of the requirements study: Gokmen and Vlasov, Front. Neurosci. 10, 333 (2016).
    "GokmenVlasov": ConstantStep(
        dw_min=1.6e-3, dw_min_dtod=0.3, dw_min_std=0.3, up_down_dtod=0.01, w_max=1.0, w_min=-1.0, w_max_dtod=0.3, w_min_dtod=0.3
    ),
    # A device without spread worth the name.
    "Idealized": ConstantStep(
        dw_min=2e-4, dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, w_max=1.0, w_min=-1.0, w_max_dtod=0.0, w_min_dtod=0.0
    ),
    # Phase-change memory, pairs that only go up: Nandakumar et al., Front. Neurosci. 14, 406 (2020).
    "PCM": OneSided(
        device=ExpStep(
            dw_min=0.01, dw_min_dtod=0.1, dw_min_std=0.6, up_down=0.0, up_down_dtod=0.01, w_max=2.0, w_min=0.0,
            w_max_dtod=0.05, w_min_dtod=0.0, a=-1.0, b=0.0, gamma_up=2.5, gamma_down=2.5, a_up=-27.235, a_down=-2.235,
        )
    ),
}  # fmt: skip
