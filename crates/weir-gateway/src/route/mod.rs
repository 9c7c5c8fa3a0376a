//! Routes: which one wins a request, and why.
