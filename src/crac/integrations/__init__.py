"""CRaC in other training tools; each module needs the tool it is named after.

``crac.integrations.monai``, ``crac.integrations.lightning`` and, for nnU-Net, the trainers in
``crac.integrations.nnunet``.
"""
