//! weir-discover: registry contents, which anyone with write access there controls.

use crate::Random;
use weir_discover::etcd::{Format, Table};
use weir_discover::{Applied, Book, Choice, INSTANCES, Listing, Verdict, consul, place, srv};

/// The first byte selects the rest: an etcd answer and lines of its watch, a Consul answer, DNS records, or a host
/// with a port.
pub fn discover(data: &[u8]) {
    let Some((&what, rest)) = data.split_first() else { return };
    let choice = Choice {
        scheme: "grpc".to_owned(),
        tls: what & 0x40 != 0,
        version: (what & 0x20 != 0).then(|| "v1".to_owned()),
    };
    match what % 4 {
        0 => etcd(rest, if what & 0x10 == 0 { Format::Kratos } else { Format::GoZero }, choice),
        1 => consul_answers(rest, choice),
        2 => records(rest),
        _ => {
            if let Ok((host, port)) = place(&String::from_utf8_lossy(rest)) {
                let written =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                assert_eq!(place(&written), Ok((host, port)), "one form");
            }
        }
    }
}

/// Lines: the first is the initial read, the others come from the watch.
fn etcd(text: &[u8], format: Format, choice: Choice) {
    let mut table = Table::new("/microservices/orders", format, choice);
    let mut book = Book::new(1);
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        let went_back = if number == 0 { table.load(line) } else { Ok(table.apply(line) == Applied::Same) };
        let before = table.listing();
        sound(&before);
        if let Ok(went_back) = went_back {
            follow(&mut book, before, went_back);
        }
    }
}

fn consul_answers(text: &[u8], choice: Choice) {
    let mut service = consul::Service::new("orders", Some("a"), None, choice);
    let mut book = Book::new(1);
    for part in text.split(|b| *b == b'\n') {
        let (index, body) = part.split_at(part.len().min(2));
        if let Ok(answer) = service.answered(Some(index), body) {
            sound(&answer.listing);
            follow(&mut book, answer.listing, answer.went_back);
        }
        let target = service.target();
        assert!(target.bytes().all(|b| b.is_ascii_graphic()), "{target}");
        assert!(!target.contains("index=0"), "{target}");
    }
}

fn records(bytes: &[u8]) {
    let records = bytes.chunks(8).map(|chunk| {
        let at = |n: usize| u16::from(chunk.get(n).copied().unwrap_or_default()) * 257;
        srv::Record {
            priority: at(0),
            weight: at(1),
            port: at(2),
            target: String::from_utf8_lossy(chunk.get(3..).unwrap_or_default()).into_owned(),
        }
    });
    sound(&srv::listing(&records.collect::<Vec<_>>()));
}

/// An upstream gets only endpoints that were asked for.
fn sound(listing: &Listing) {
    assert!(listing.instances.len() <= INSTANCES && listing.left_out.len() <= listing.unusable);
    for pair in listing.instances.windows(2) {
        assert!((&pair[0].host, pair[0].port) < (&pair[1].host, pair[1].port), "each address once, in order");
    }
    for instance in &listing.instances {
        assert!(instance.port != 0 && (1..=65_535).contains(&instance.weight));
        assert_eq!(place(&format!("[{}]:1", instance.host)).map(|(host, _)| host), Ok(instance.host.clone()));
        let texts = [&instance.id, &instance.version].into_iter().chain(instance.zone.as_ref());
        for text in texts {
            assert!(text.len() <= 256 && !text.chars().any(char::is_control));
        }
    }
}

/// The last good list stays, unless the answer says that all instances have left.
fn follow(book: &mut Book, listing: Listing, went_back: bool) {
    let (before, empty) = (book.good().map(|good| good.instances.len()), listing.instances.is_empty());
    match book.answered(listing, went_back) {
        Verdict::Kept => {
            assert!(empty && before.is_some_and(|before| before > 0) && book.trouble().is_some())
        }
        Verdict::Publish | Verdict::Same => {
            assert_eq!(book.good().map(|good| good.instances.is_empty()), Some(empty))
        }
    }
    let mut random = Random(7);
    for _ in 0..random.below(3) {
        let wait = book.failed("away".to_owned());
        assert!(wait <= std::time::Duration::from_secs(5) && !book.follows());
    }
}
