//! Why a request got no response, worded so that it suggests a remedy.

use std::io;
use weir_wire::dial::DialError;
use weir_wire::tls::{TlsFault, explained, fault_of};

/// Why a request got no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection.
    Connect(String),
    /// The run ended. Not an error.
    Cut,
    /// No connection: no descriptor is free.
    Descriptors(String),
    /// No connection: no local port is free.
    Ports(String),
    /// The response violated the protocol.
    Protocol(String),
    /// The connection was closed or reset first.
    Reset(String),
    /// It took too long.
    Timeout(Wait),
    /// The TLS handshake failed.
    Tls(String),
    /// The request could not be written.
    Write(String),
}

/// The step that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The rest of a response.
    Body,
    /// A connection.
    Connect,
    /// The head of a response.
    Head,
    /// The answer of a program.
    Program,
    /// The handshake of QUIC.
    #[cfg(feature = "http3")]
    Quic,
    /// A free stream on a connection that accepts no more.
    Stream,
    /// The TLS handshake.
    Tls,
}

impl Wait {
    /// The text in reports.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Body => "timeout in the middle of a response",
            Self::Connect => "timeout while connecting",
            Self::Head => "timeout before the head of a response was complete",
            Self::Program => "the program did not answer in time",
            #[cfg(feature = "http3")]
            Self::Quic => "timeout in the handshake of QUIC: does the target serve HTTP/3 on this UDP port?",
            Self::Stream => "timeout while all streams that the target allows were in use",
            Self::Tls => "timeout in the TLS handshake",
        }
    }
}

impl Failure {
    /// The text in reports.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Connect(text)
            | Self::Descriptors(text)
            | Self::Ports(text)
            | Self::Protocol(text)
            | Self::Reset(text)
            | Self::Tls(text)
            | Self::Write(text) => text,
            Self::Cut => "the run ended",
            Self::Timeout(wait) => wait.text(),
        }
    }

    /// Describes a failed TLS handshake, with the option that helps.
    pub(crate) fn of_tls(e: &io::Error) -> Self {
        let hint = match fault_of(e) {
            Some(TlsFault::Date) => "; --insecure accepts it anyway",
            Some(TlsFault::NoName) => "; make one with it, or --insecure accepts any",
            Some(TlsFault::Name) => "; --server-name says what to ask for",
            Some(TlsFault::OurCertificate) => "; --cert and --key name one",
            Some(TlsFault::Stranger) => {
                "; --cacert with that issuer's certificate trusts it, --insecure accepts any"
            }
            Some(TlsFault::Other) | None => "",
        };
        Self::Tls(format!("{e}{hint}"))
    }

    /// Describes a connection that ended during a read. With TLS 1.3 a peer may refuse our certificate only then.
    pub(crate) fn of_read(e: io::Error) -> Self {
        let e = explained(e);
        let hint = match fault_of(&e) {
            Some(TlsFault::OurCertificate) => "; --cert and --key name one",
            _ => "",
        };
        Self::Reset(format!("{e}{hint}"))
    }
}

impl From<DialError> for Failure {
    fn from(e: DialError) -> Self {
        match e {
            DialError::TimedOut => Self::Timeout(Wait::Connect),
            DialError::Tls(e) => Self::of_tls(&e),
            DialError::Refused(e) => Self::Connect(e.to_string()),
            DialError::Failed(e) if weir_wire::limits::ran_out(&e) => Self::Descriptors(e.to_string()),
            DialError::Failed(e) if e.kind() == io::ErrorKind::AddrNotAvailable => Self::Ports(e.to_string()),
            DialError::Failed(e) => Self::Connect(e.to_string()),
        }
    }
}
