//! Counters, histograms, the access log and the process's own log: what a Weir reports about itself.
//!
//! Each core has its own copy of everything that a request updates, and only that core writes it. So measuring costs
//! a plain load and a plain store; the control thread adds up the cores on demand.
//!
//! # Layout
//!
//! - [`cell`]: the smallest parts, one number each: [`Counter`], [`Gauge`], [`Histogram`], [`StatusCounts`].
//! - [`series`]: the cells of one listener, route, upstream or endpoint, and the bounded tables of their names.
//! - `health`: why an endpoint is out of rotation, and how often that happened.
//! - [`registry`]: [`Telemetry`], the process-wide table, and [`CoreCells`], a core's share of it.
//! - [`exposition`]: `/metrics`, as Prometheus text or OpenMetrics.
//! - `exemplar`: the last traced exchange of each bucket of a histogram.
//! - [`otlp`]: spans and log records in the OpenTelemetry protocol; `exported` counts what was delivered and lost.
//! - [`access_log`]: one line per exchange, formatted on the core, written by one thread.
//! - [`log`]: the process's own log, with levels and key-value pairs.
//! - `sink` and `text`: the writer thread and the escaping that both logs share.

pub mod access_log;
pub mod cell;
pub mod exposition;
pub mod log;
pub mod otlp;
pub mod registry;
pub mod series;

mod error;
mod exemplar;
mod exported;
mod figure;
mod health;
mod process;
mod sink;
mod text;
mod time;

pub use access_log::{
    AccessLog, AccessLogWriter, Computed, Entry, FormatPiece, Header, LineFormat, Redaction, RequestCopy,
    TakesRecords, Timing, Unwritten, When,
};
pub use cell::{Counter, Gauge, Histogram, HistogramTotals, StatusCounts};
pub use error::{Error, Result};
pub use exemplar::{Exemplar, Exemplars};
pub use exported::{Exported, Lost};
pub use exposition::{Exposition, FilterReading, negotiate};
pub use figure::{Figure, FigureKind};
pub use health::{Ejection, OutReason};
pub use registry::{
    CertificateEnd, CoreCells, KeptCertificate, RouteFigures, Setup, SourceState, Telemetry, UpstreamFigures,
};
pub use series::{
    Attempt, Closed, ConsumerCells, ConsumerId, EndpointCells, EndpointId, EndpointTotals, ListenerCells,
    ListenerId, Protocol, RouteCells, RouteId, UpstreamCells, UpstreamId,
};
pub use sink::{Duplex, Output, Rotation, Secure, Server, Shake, Syslog};
pub use time::timestamp;
