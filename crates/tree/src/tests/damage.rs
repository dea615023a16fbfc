//! Damage in every place.
