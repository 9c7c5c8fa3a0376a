//! Counters, histograms and the access log, kept per core.
