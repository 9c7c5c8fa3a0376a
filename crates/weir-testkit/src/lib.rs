//! What tests are written with. Never shipped.
