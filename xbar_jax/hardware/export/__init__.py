"""Programmed layers as files that a lab can load, and that a load can be verified against."""

from xbar_jax.hardware.export.files import Stored, read
from xbar_jax.hardware.export.iterate import ArrayTargets, arrays
from xbar_jax.hardware.export.load import load
from xbar_jax.hardware.export.save import save
from xbar_jax.hardware.export.tables import csv
from xbar_jax.hardware.export.verify import LayerReport, Report, verify

__all__ = ["ArrayTargets", "LayerReport", "Report", "Stored", "arrays", "csv", "load", "read", "save", "verify"]
