//! The descriptors of our services, for reflection (google/protobuf/descriptor.proto).

use super::wire;

/// A file with messages and services.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: &'static str,
    package: &'static str,
    messages: &'static [Message],
    services: &'static [Service],
}

#[derive(Debug)]
struct Message {
    name: &'static str,
    fields: &'static [Field],
    /// The name of its only enum, and the names of its values from 0.
    values: Option<(&'static str, &'static [&'static str])>,
    /// The name of its only oneof.
    choice: Option<&'static str>,
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    number: u64,
    kind: Kind,
    repeated: bool,
    /// Whether it belongs to the oneof.
    chosen: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Bool,
    Bytes,
    Enum(&'static str),
    Int32,
    Message(&'static str),
    Text,
    Uint32,
}

#[derive(Debug)]
struct Service {
    name: &'static str,
    methods: &'static [Method],
}

/// Name, input, output.
#[derive(Debug)]
struct Method(&'static str, Stream, &'static str, Stream, &'static str);

/// The number of messages in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Many,
    One,
}

use Stream::{Many, One};

/// All files, by name.
pub(super) static FILES: &[File] = &[
    File {
        name: "grpc/health/v1/health.proto",
        package: "grpc.health.v1",
        messages: &[
            message("HealthCheckRequest", &[field("service", 1, Kind::Text)]),
            Message {
                values: Some(("ServingStatus", &["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"])),
                ..message(
                    "HealthCheckResponse",
                    &[field("status", 1, Kind::Enum("HealthCheckResponse.ServingStatus"))],
                )
            },
        ],
        services: &[Service {
            name: "Health",
            methods: &[
                Method("Check", One, "HealthCheckRequest", One, "HealthCheckResponse"),
                Method("Watch", One, "HealthCheckRequest", Many, "HealthCheckResponse"),
            ],
        }],
    },
    File {
        name: "grpc/reflection/v1/reflection.proto",
        package: "grpc.reflection.v1",
        messages: REFLECTION,
        services: REFLECTION_SERVICE,
    },
    File {
        name: "grpc/reflection/v1alpha/reflection.proto",
        package: "grpc.reflection.v1alpha",
        messages: REFLECTION,
        services: REFLECTION_SERVICE,
    },
    File {
        name: "greeter.proto",
        package: "helloworld.v1",
        messages: &[
            message(
                "HelloRequest",
                &[
                    field("name", 1, Kind::Text),
                    field("code", 2, Kind::Uint32),
                    field("delay_ms", 3, Kind::Uint32),
                    field("replies", 4, Kind::Uint32),
                    field("echo_metadata", 5, Kind::Bool),
                ],
            ),
            message("HelloReply", &[field("message", 1, Kind::Text), many("metadata", 2, Kind::Text)]),
        ],
        services: &[Service {
            name: "Greeter",
            methods: &[
                Method("SayHello", One, "HelloRequest", One, "HelloReply"),
                Method("LotsOfReplies", One, "HelloRequest", Many, "HelloReply"),
                Method("LotsOfGreetings", Many, "HelloRequest", One, "HelloReply"),
                Method("BidiHello", Many, "HelloRequest", Many, "HelloReply"),
            ],
        }],
    },
];

const REFLECTION_SERVICE: &[Service] = &[Service {
    name: "ServerReflection",
    methods: &[Method(
        "ServerReflectionInfo",
        Many,
        "ServerReflectionRequest",
        Many,
        "ServerReflectionResponse",
    )],
}];

const REFLECTION: &[Message] = &[
    Message {
        choice: Some("message_request"),
        ..message(
            "ServerReflectionRequest",
            &[
                field("host", 1, Kind::Text),
                chosen("file_by_filename", 3, Kind::Text),
                chosen("file_containing_symbol", 4, Kind::Text),
                chosen("file_containing_extension", 5, Kind::Message("ExtensionRequest")),
                chosen("all_extension_numbers_of_type", 6, Kind::Text),
                chosen("list_services", 7, Kind::Text),
            ],
        )
    },
    message(
        "ExtensionRequest",
        &[field("containing_type", 1, Kind::Text), field("extension_number", 2, Kind::Int32)],
    ),
    Message {
        choice: Some("message_response"),
        ..message(
            "ServerReflectionResponse",
            &[
                field("valid_host", 1, Kind::Text),
                field("original_request", 2, Kind::Message("ServerReflectionRequest")),
                chosen("file_descriptor_response", 4, Kind::Message("FileDescriptorResponse")),
                chosen("all_extension_numbers_response", 5, Kind::Message("ExtensionNumberResponse")),
                chosen("list_services_response", 6, Kind::Message("ListServiceResponse")),
                chosen("error_response", 7, Kind::Message("ErrorResponse")),
            ],
        )
    },
    message("FileDescriptorResponse", &[many("file_descriptor_proto", 1, Kind::Bytes)]),
    message(
        "ExtensionNumberResponse",
        &[field("base_type_name", 1, Kind::Text), many("extension_number", 2, Kind::Int32)],
    ),
    message("ListServiceResponse", &[many("service", 1, Kind::Message("ServiceResponse"))]),
    message("ServiceResponse", &[field("name", 1, Kind::Text)]),
    message("ErrorResponse", &[field("error_code", 1, Kind::Int32), field("error_message", 2, Kind::Text)]),
];

const fn message(name: &'static str, fields: &'static [Field]) -> Message {
    Message { name, fields, values: None, choice: None }
}

const fn field(name: &'static str, number: u64, kind: Kind) -> Field {
    Field { name, number, kind, repeated: false, chosen: false }
}

const fn chosen(name: &'static str, number: u64, kind: Kind) -> Field {
    Field { chosen: true, ..field(name, number, kind) }
}

const fn many(name: &'static str, number: u64, kind: Kind) -> Field {
    Field { repeated: true, ..field(name, number, kind) }
}

impl File {
    /// The full names of its services.
    pub(super) fn services(&self) -> impl Iterator<Item = String> {
        self.services.iter().map(|s| format!("{}.{}", self.package, s.name))
    }

    /// Whether it declares this full name: a service, a method or a message.
    pub(super) fn has(&self, symbol: &str) -> bool {
        let Some(name) = symbol.strip_prefix(self.package).and_then(|n| n.strip_prefix('.')) else {
            return false;
        };
        let of_service = |s: &Service| match name.strip_prefix(s.name) {
            Some("") => true,
            Some(rest) => s.methods.iter().any(|m| rest.strip_prefix('.') == Some(m.0)),
            None => false,
        };
        self.messages.iter().any(|m| m.name == name) || self.services.iter().any(of_service)
    }

    /// `FileDescriptorProto`.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        wire::bytes(1, self.name.as_bytes(), &mut out);
        wire::bytes(2, self.package.as_bytes(), &mut out);
        for m in self.messages {
            wire::message(4, |out| m.write(self.package, out), &mut out);
        }
        for s in self.services {
            wire::message(6, |out| s.write(self.package, out), &mut out);
        }
        wire::bytes(12, b"proto3", &mut out);
        out
    }
}

impl Message {
    /// `DescriptorProto`.
    fn write(&self, package: &str, out: &mut Vec<u8>) {
        wire::bytes(1, self.name.as_bytes(), out);
        for f in self.fields {
            wire::message(2, |out| f.write(package, out), out);
        }
        if let Some((name, values)) = self.values {
            wire::message(4, |out| write_enum(name, values, out), out);
        }
        if let Some(choice) = self.choice {
            wire::message(8, |out| wire::bytes(1, choice.as_bytes(), out), out);
        }
    }
}

impl Field {
    /// `FieldDescriptorProto`.
    fn write(&self, package: &str, out: &mut Vec<u8>) {
        const OPTIONAL: u64 = 1;
        const REPEATED: u64 = 3;
        let (kind, of) = match self.kind {
            Kind::Bool => (8, None),
            Kind::Bytes => (12, None),
            Kind::Enum(name) => (14, Some(name)),
            Kind::Int32 => (5, None),
            Kind::Message(name) => (11, Some(name)),
            Kind::Text => (9, None),
            Kind::Uint32 => (13, None),
        };
        wire::bytes(1, self.name.as_bytes(), out);
        wire::number(3, self.number, out);
        wire::number(4, if self.repeated { REPEATED } else { OPTIONAL }, out);
        wire::number(5, kind, out);
        if let Some(name) = of {
            wire::bytes(6, format!(".{package}.{name}").as_bytes(), out);
        }
        if self.chosen {
            wire::number(9, 0, out); // the first and only oneof
        }
        wire::bytes(10, json_name(self.name).as_bytes(), out);
    }
}

impl Service {
    /// `ServiceDescriptorProto`.
    fn write(&self, package: &str, out: &mut Vec<u8>) {
        wire::bytes(1, self.name.as_bytes(), out);
        for Method(name, takes, input, gives, output) in self.methods {
            let write = |out: &mut Vec<u8>| {
                wire::bytes(1, name.as_bytes(), out);
                wire::bytes(2, format!(".{package}.{input}").as_bytes(), out);
                wire::bytes(3, format!(".{package}.{output}").as_bytes(), out);
                for (field, stream) in [(5, takes), (6, gives)] {
                    if *stream == Many {
                        wire::number(field, 1, out);
                    }
                }
            };
            wire::message(2, write, out);
        }
    }
}

/// `EnumDescriptorProto`.
fn write_enum(name: &str, values: &[&str], out: &mut Vec<u8>) {
    wire::bytes(1, name.as_bytes(), out);
    for (number, value) in values.iter().enumerate() {
        let write = |out: &mut Vec<u8>| {
            wire::bytes(1, value.as_bytes(), out);
            wire::number(2, number as u64, out);
        };
        wire::message(2, write, out);
    }
}

/// `delay_ms` in JSON notation: `delayMs`.
fn json_name(name: &str) -> String {
    let mut out = String::new();
    let mut after = false;
    for c in name.chars() {
        match c {
            '_' => after = true,
            c if std::mem::take(&mut after) => out.push(c.to_ascii_uppercase()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;
    use prost_reflect::prost::Message as _;

    #[test]
    fn every_file_describes_what_is_served() {
        let mut pool = DescriptorPool::new();
        for file in FILES {
            pool.decode_file_descriptor_proto(&file.bytes()[..]).unwrap();
        }
        let mut paths: Vec<String> = pool
            .services()
            .flat_map(|s| s.methods().map(|m| format!("/{}/{}", s.full_name(), m.name())).collect::<Vec<_>>())
            .collect();
        paths.sort();
        assert_eq!(paths, super::super::METHODS.iter().map(|(path, _)| *path).collect::<Vec<_>>());
    }

    #[test]
    fn the_greeter_is_what_its_file_says() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
        let compiled = protox::compile(["greeter.proto"], [folder]).unwrap();
        let mut file = compiled.file.into_iter().find(|f| f.name() == "greeter.proto").unwrap();
        file.source_code_info = None;
        let ours = FILES.iter().find(|f| f.name == "greeter.proto").unwrap().bytes();
        let ours = prost_reflect::prost_types::FileDescriptorProto::decode(&ours[..]).unwrap();
        assert_eq!(ours, file);
    }

    #[test]
    fn symbols_are_found() {
        let has = |symbol: &str| FILES.iter().filter(|f| f.has(symbol)).count();
        for known in ["helloworld.v1.Greeter", "helloworld.v1.Greeter.SayHello", "helloworld.v1.HelloReply"] {
            assert_eq!(has(known), 1, "{known}");
        }
        for unknown in ["", "helloworld.v1", "helloworld.v1.Greet", "helloworld.v1.Greeter.", "Greeter"] {
            assert_eq!(has(unknown), 0, "{unknown}");
        }
    }
}
