"""From a trained run to calibrated probability maps. Needs the ``train`` extra."""
