//! The outputs that change with a config: the access log, the process's own log, and a collector.

use super::{Control, Failed};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use weir_config::schema;
use weir_engine::export::{Destination, Exporter, Protocol, Signal};
use weir_engine::snapshot::log_tls;
use weir_h1::FieldName;
use weir_telemetry::{
    AccessLogWriter, Duplex, LineFormat, Output, Rotation, Secure, Server, Syslog, When, log,
};
use weir_upstream::fetch::{Trust, Url};
use weir_wire::{Context, hex};

/// How long the end waits for log lines to be written, and as long for spans to be sent.
const FLUSH: Duration = Duration::from_secs(2);

/// The access log, and its exporter if a collector gets it.
pub(super) struct LogWriter {
    pub(super) writer: AccessLogWriter,
    exporter: Option<Exporter>,
}

/// What to do with something optional.
pub(super) enum Change<T> {
    Keep,
    New(Option<T>),
}

impl Control {
    pub(super) fn next_spans(&self, wanted: Option<&schema::Tracing>) -> Result<Change<Exporter>, Failed> {
        let Some((tracing, url)) = wanted.and_then(|tracing| Some((tracing, tracing.otlp.clone()?))) else {
            return Ok(if self.spans.is_some() { Change::New(None) } else { Change::Keep });
        };
        let destination = destination("tracing", Signal::Spans, url, &tracing.collector())?;
        if self.spans.as_ref().is_some_and(|exporter| exporter.is(&destination)) {
            return Ok(Change::Keep);
        }
        let (control, fetcher) = (&self.names.runtime, &self.names.fetcher);
        Ok(Change::New(Some(Exporter::start(destination, self.telemetry.spans(), control, fetcher))))
    }

    pub(super) fn next_log(&self, wanted: &schema::AccessLog) -> Result<Change<LogWriter>, Failed> {
        let output = match &wanted.syslog {
            Some(written) => syslog(written)?.map(Output::Syslog),
            None => output(&wanted.output),
        };
        let Some(output) = output else {
            return Ok(if self.access_log.is_some() { Change::New(None) } else { Change::Keep });
        };
        let mut refused = None;
        let mut format = wanted.line_format(&mut |path, e| {
            refused.get_or_insert_with(|| format!("{path}: {e}"));
        });
        if let Some(refused) = refused {
            return Err(refused.into());
        }
        if let Some(when) = &wanted.when {
            format.limit(When::parse(when).map_err(|e| Context::new("access_log.when", e))?);
        }
        for (field, how) in wanted.redact.0.iter().filter(|(field, _)| !field.starts_with("query:")) {
            let how =
                schema::AccessLog::redaction(how).ok_or_else(|| format!("access_log.redact.{field}"))?;
            format.redact(field, how).map_err(|e| Context::new("access_log.redact", e))?;
        }
        if let Some((collector, url)) = wanted.otlp.as_ref().and_then(|c| Some((c, c.url.clone()?))) {
            return self.next_records(destination("access_log.otlp", Signal::Logs, url, collector)?, format);
        }
        let rotation = wanted.rotate.as_ref().map(|rotate| Rotation {
            size: rotate.size.map(|size| size.get()),
            age: rotate.age.map(|age| age.get()),
            keep: rotate.keep as usize,
        });
        if self.access_log.as_ref().is_some_and(|log| log.writer.is(&output, &format, rotation.as_ref())) {
            return Ok(Change::Keep);
        }
        let writer = AccessLogWriter::open_rotated(&self.telemetry, output, format, rotation);
        let writer = writer.map_err(|e| Context::new("access_log", e))?;
        Ok(Change::New(Some(LogWriter { writer, exporter: None })))
    }

    /// The access log for a collector.
    fn next_records(&self, to: Destination, format: LineFormat) -> Result<Change<LogWriter>, Failed> {
        let same = |log: &LogWriter| {
            log.writer.is_records(&format) && log.exporter.as_ref().is_some_and(|exporter| exporter.is(&to))
        };
        if self.access_log.as_ref().is_some_and(same) {
            return Ok(Change::Keep);
        }
        let (control, fetcher) = (&self.names.runtime, &self.names.fetcher);
        let exporter = Exporter::start(to, self.telemetry.records(), control, fetcher);
        let writer = AccessLogWriter::to_records(&self.telemetry, Arc::new(exporter.outlet()), format);
        Ok(Change::New(Some(LogWriter { writer, exporter: Some(exporter) })))
    }

    /// The cores have ended: writes and sends the rest.
    pub(super) fn end_outputs(&mut self) {
        if let Some(LogWriter { writer, exporter }) = self.access_log.take() {
            writer.flush(FLUSH);
            drop(writer);
            if let Some(exporter) = exporter {
                exporter.end(FLUSH);
            }
        }
        if let Some(exporter) = self.spans.take() {
            exporter.end(FLUSH);
        }
    }
}

/// A collector's destination, as written at `path`.
fn destination(
    path: &str,
    signal: Signal,
    url: Url,
    written: &schema::Collector,
) -> Result<Destination, Context> {
    let trust = written.ca.as_ref().map(|ca| Trust::file(&ca.0)).transpose();
    let field = |(name, value): &(String, String)| {
        let name = FieldName::new(name).map_err(|e| Context::new(format!("{path}.headers"), e))?;
        Ok::<_, Context>((name, value.clone().into_bytes()))
    };
    Ok(Destination {
        signal,
        url,
        protocol: match written.spoken() {
            schema::OtlpProtocol::Grpc => Protocol::Grpc,
            schema::OtlpProtocol::Http => Protocol::Http,
        },
        headers: written.headers.0.iter().map(field).collect::<Result<_, _>>()?,
        trust: trust.map_err(|e| Context::new(format!("{path}.ca"), e))?.unwrap_or_default(),
        timeout: written.timeout.get(),
        resource: resource(written),
    })
}

/// The attributes that describe this gateway to a collector.
fn resource(tracing: &schema::Collector) -> Vec<(String, String)> {
    let own = [
        ("service.name", tracing.service.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("process.pid", std::process::id().to_string()),
    ];
    let written = tracing.resource.0.iter().cloned();
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
    let own = own.filter(|(key, _)| !tracing.resource.0.iter().any(|(known, _)| known == key));
    own.chain(written).collect()
}

/// A syslog server as configured.
fn syslog(written: &schema::Syslog) -> Result<Option<Syslog>, Context> {
    let Some(server) = Server::parse(&written.server) else { return Ok(None) };
    let secure = matches!(server, Server::Tls(_)).then(|| secure(written)).transpose()?;
    Ok(Some(Syslog { server, facility: written.facility as u8, name: written.name.clone(), secure }))
}

/// TLS towards a syslog server. It differs if a file has changed under the same name.
fn secure(written: &schema::Syslog) -> Result<Secure, Context> {
    let tls = log_tls(written).map_err(|(key, why)| Context::new(format!("access_log.syslog{key}"), why))?;
    let mut made_of = Sha256::new();
    made_of.update(format!("{written:?}"));
    for file in [&written.ca, &written.client_cert, &written.client_key].into_iter().flatten() {
        made_of.update(std::fs::read(&file.0).unwrap_or_default());
    }
    let shake = move |stream: std::net::TcpStream, name: &str| -> std::io::Result<Box<dyn Duplex>> {
        Ok(Box::new(tls.connect_blocking(stream, name)?))
    };
    Ok(Secure { made_of: hex::encode(&made_of.finalize()), shake: Arc::new(shake) })
}

fn output(written: &schema::Output) -> Option<Output> {
    match written {
        schema::Output::File(path) => Some(Output::File(path.clone())),
        schema::Output::Off => None,
        schema::Output::Stderr => Some(Output::Stderr),
        schema::Output::Stdout => Some(Output::Stdout),
    }
}

pub(super) fn configure_log(written: &schema::Log) -> Result<(), Context> {
    let level = match written.level {
        schema::LogLevel::Debug => log::Level::Debug,
        schema::LogLevel::Error => log::Level::Error,
        schema::LogLevel::Info => log::Level::Info,
        schema::LogLevel::Warn => log::Level::Warn,
    };
    let format = match written.format {
        schema::LogFormat::Json => log::Format::Json,
        schema::LogFormat::Text => log::Format::Text,
    };
    let Some(output) = output(&written.output) else { return Ok(()) };
    log::configure(&log::Settings { level, format, output }).map_err(|e| Context::new("log", e))
}
