//! Server reflection, v1 and v1alpha, which differ only in name: lists the services and the files that describe them.

use super::descriptor::{FILES, File};
use super::{Call, Code, Stop, wire};

/// The subject of a request.
#[derive(Clone, Copy, Debug, Default)]
enum Asked<'a> {
    File(&'a str),
    #[default]
    Nothing,
    Services,
    Symbol(&'a str),
    /// Extensions, of which there are none.
    TypeOf(&'a str),
}

pub(super) async fn info(call: &mut Call) -> Result<(), Stop> {
    while let Some(message) = call.next().await? {
        let (mut host, mut asked) = ("", Asked::Nothing);
        wire::read(&message, |field, value| match field {
            1 => host = value.text(),
            3 => asked = Asked::File(value.text()),
            4 => asked = Asked::Symbol(value.text()),
            5 | 6 => asked = Asked::TypeOf(value.text()),
            7 => asked = Asked::Services,
            _ => {}
        })?;
        let mut reply = Vec::new();
        wire::bytes(1, host.as_bytes(), &mut reply);
        wire::bytes(2, &message, &mut reply);
        answer(asked, &mut reply);
        call.send(&reply).await?;
    }
    Ok(())
}

fn answer(asked: Asked<'_>, reply: &mut Vec<u8>) {
    let file = match asked {
        Asked::File(name) => FILES.iter().find(|f| f.name == name),
        Asked::Symbol(name) => FILES.iter().find(|f| f.has(name)),
        Asked::Services => return wire::message(6, services, reply),
        Asked::Nothing | Asked::TypeOf(_) => None,
    };
    match (file, asked) {
        (Some(file), _) => wire::message(4, |m| wire::bytes(1, &file.bytes(), m), reply),
        (None, Asked::Nothing) => problem(Code::INVALID_ARGUMENT, "nothing was asked for", reply),
        (None, Asked::File(name) | Asked::Symbol(name) | Asked::TypeOf(name)) => {
            problem(Code::NOT_FOUND, &format!("the origin knows no {name}"), reply);
        }
        (None, Asked::Services) => {}
    }
}

fn services(list: &mut Vec<u8>) {
    for name in FILES.iter().flat_map(File::services) {
        wire::message(1, |service| wire::bytes(1, name.as_bytes(), service), list);
    }
}

fn problem(code: Code, text: &str, reply: &mut Vec<u8>) {
    let write = |m: &mut Vec<u8>| {
        wire::number(1, u64::from(code.0), m);
        wire::bytes(2, text.as_bytes(), m);
    };
    wire::message(7, write, reply);
}
