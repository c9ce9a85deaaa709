//! Deployment optimiser for trained models.
