"""Doors into the tools people already train with; each module needs the tool it is named after.

``crac.integrations.monai``, ``crac.integrations.lightning`` and, for nnU-Net, the trainers in
``crac.integrations.nnunet``.
"""
