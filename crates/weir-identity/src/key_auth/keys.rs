//! The keys of the config, of a file or of a source: found by their hashes, and remembered once verified.

use crate::prelude::*;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::OnceLock;
use weir_filter::directory::{CredentialIndex, Intake, Refused};
use weir_wire::hex;

/// Hashes of all keys, with their owners.
pub(super) struct Keys {
    /// By the first half of the hash, which an attacker cannot choose; two keys with the same half are a mistake in
    /// the config. The map is seeded. The comparison of the other half decides.
    pub(super) by_half: HashMap<u128, (u128, Owner), foldhash::fast::RandomState>,
    pub(super) verified: Verified,
}

/// Keys that were verified once. The next request with one of them saves the 3,400 instructions of SHA-256.
///
/// A key is remembered by its [`Tag`], not by its text. The duration of a comparison reveals nothing about the key.
/// Only keys from the config are remembered, and they are dropped with the snapshot.
///
/// Invariant: a slot is written once, so a reader sees it either empty or complete. A key whose slots are taken is
/// hashed each time, and so is a key that is longer than the secrets.
pub(super) struct Verified {
    /// First those for the key's length and last bytes, then those for each pair of words.
    secrets: Box<[Secrets]>,
    pub(super) slots: Box<[OnceLock<(Tag, Owner)>]>,
}

/// Two keyed sums over the pairs of a key's words. Each word of a pair is increased by a secret, and the product of
/// both is added. The sums have different secrets, and each snapshot draws new ones.
///
/// Each sum is NH of 64-bit words (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: Fast and Secure Message
/// Authentication", 1999). Without the secrets, any two different keys have the same sum with a probability of at most
/// 1 in 2^64, and the same tag with at most 1 in 2^128. The key's length is one of its words, so that this also holds
/// for keys of different lengths.
pub(super) type Tag = [u128; 2];

/// What is added to the words of a pair, for each sum.
type Secrets = [[u64; 2]; 2];

/// The consumer that a key belongs to, and which of its keys it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) consumer: u32,
    /// The first digits of the key's hash.
    pub(super) digits: [u8; 8],
}

/// Most slots, 64 bytes each, and how many are probed for a key. Two slots per key are made, so the first probe finds
/// most keys.
pub(super) const SLOTS: usize = 8192;
pub(super) const PROBES: usize = 8;

/// Longest key that is remembered, in words of eight bytes.
pub(super) const WORDS: usize = 32;

/// Largest file of keys, in bytes, and most of its mistakes that are reported.
pub(super) const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
pub(super) const MAX_MISTAKES: usize = 5;

pub(super) type Hash = [u8; 32];

// === impl Keys ===

impl Keys {
    pub(super) fn read(file: Option<&FilePath>, build: &mut Build<'_>) -> Self {
        let mut keys = Self { by_half: HashMap::default(), verified: Verified::new(0) };
        let consumers = Consumers::clone(build.consumers);
        for (index, consumer) in consumers.iter().enumerate() {
            for (n, key) in consumer.credentials.get("key_auth").into_iter().flatten().enumerate() {
                let whose = format!("key {} of consumer `{}`", n + 1, consumer.name);
                match parse_key(key) {
                    Ok(hash) => keys.add("", hash, index, &whose, build),
                    Err(why) => build.refuse("", format!("{whose} {why}"), None),
                }
            }
        }
        if let Some(file) = file {
            keys.read_file(file, build);
        }
        if keys.by_half.is_empty() && build.directory.is_none() && build.mistakes.is_empty() {
            let hint = "write consumers: { NAME: { key_auth: [ \"${NAME_KEY}\" ] } }";
            build.refuse("", "no consumer has a key: every request would be refused", Some(hint.into()));
        }
        keys.verified = Verified::new(keys.by_half.len());
        keys
    }

    /// Reads a file of names and keys. No message contains a key.
    fn read_file(&mut self, file: &FilePath, build: &mut Build<'_>) {
        let text = match build.read_file(file, MAX_FILE_BYTES) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(message) => return build.refuse("file", message, None),
        };
        let consumers = Consumers::clone(build.consumers);
        let before = build.mistakes.len();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
            let Some(name) = words.next() else { continue };
            let whose = format!("{}:{}: the key", file.0.display(), number + 1);
            let (Some(key), None) = (words.next(), words.next()) else {
                let message = format!("{}:{}: is not a pair", file.0.display(), number + 1);
                build.refuse("file", message, Some("write a consumer and a key in each line".into()));
                continue;
            };
            match (consumers.iter().position(|consumer| consumer.name == name), parse_key(key)) {
                (Some(index), Ok(hash)) => self.add("file", hash, index, &whose, build),
                (Some(_), Err(why)) => build.refuse("file", format!("{whose} {why}"), None),
                (None, _) => {
                    let place = format!("{}:{}", file.0.display(), number + 1);
                    let hint = Some("write it under `consumers`, if only as `NAME: {}`".into());
                    build.refuse("file", format!("{place}: there is no consumer `{name}`"), hint);
                }
            }
            if build.mistakes.len() - before >= MAX_MISTAKES {
                return;
            }
        }
    }

    fn add(&mut self, field: &str, hash: Hash, index: usize, whose: &str, build: &mut Build<'_>) {
        if let Some(other) = self.insert(&hash, index as u32) {
            let other = build.consumers.get(other as usize).map_or("", |c| &c.name).to_owned();
            let hint = "a key must identify one consumer: give each consumer its own".to_owned();
            build.refuse(field, format!("{whose} already belongs to consumer `{other}`"), Some(hint.into()));
        }
    }

    /// Adds a key. Returns the consumer that has it already.
    pub(super) fn insert(&mut self, hash: &Hash, consumer: u32) -> Option<u32> {
        let (half, rest) = halves(hash);
        let owner = Owner { consumer, digits: first_digits(hash) };
        self.by_half.insert(half, (rest, owner)).map(|(_, other)| other.consumer)
    }

    /// The owner of a key that was verified before.
    #[inline(always)] // as a call, it returns the owner through memory
    pub(super) fn remembered(&self, key: &[u8]) -> Option<Owner> {
        if self.by_half.is_empty() {
            return None;
        }
        self.verified.find(self.verified.tag(key)?)
    }

    /// The owner of a key with this hash, which is then remembered.
    pub(super) fn verify(&self, key: &[u8], hash: &Hash) -> Option<Owner> {
        let (half, rest) = halves(hash);
        // The comparison of two numbers takes the same time whatever they are.
        let (_, owner) = self.by_half.get(&half).filter(|(known, _)| known ^ rest == 0)?;
        if let Some(tag) = self.verified.tag(key) {
            self.verified.remember(tag, *owner);
        }
        Some(*owner)
    }
}

impl CredentialIndex for Keys {
    fn read(intake: &mut Intake<'_>) -> Self {
        let mut keys = Self { by_half: HashMap::default(), verified: Verified::new(0) };
        intake.each(|consumer, text| {
            let hash = parse_key(text).map_err(|why| Refused::Wrong(why.into()))?;
            keys.insert(&hash, consumer).map_or(Ok(()), |other| Err(Refused::Common(other)))
        });
        keys.by_half.shrink_to_fit();
        keys.verified = Verified::new(keys.by_half.len());
        keys
    }

    fn common(&self, other: &Self) -> Vec<(u32, u32)> {
        let pair = |(half, (rest, ours)): (&u128, &(u128, Owner))| {
            let (_, theirs) = other.by_half.get(half).filter(|(known, _)| known == rest)?;
            Some((ours.consumer, theirs.consumer))
        };
        self.by_half.iter().filter_map(pair).collect()
    }
}

// === impl Verified ===

impl Verified {
    pub(super) fn new(keys: usize) -> Self {
        let slots = (2 * keys).next_power_of_two().min(SLOTS);
        let slots = (0..slots).map(|_| OnceLock::new()).collect();
        let mut random = vec![[[[0; 8]; 2]; 2]; WORDS / 2 + 1];
        if aws_lc_rs::rand::fill(random.as_flattened_mut().as_flattened_mut().as_flattened_mut()).is_err() {
            random.clear(); // without secrets nothing is remembered
        }
        let secrets = random.into_iter().map(|pair| pair.map(|sum| sum.map(u64::from_le_bytes)));
        Self { secrets: secrets.collect(), slots }
    }

    /// The tag that a key is remembered by; `None` if the key is too long.
    #[inline(always)] // as a call, it returns the tag through memory
    pub(super) fn tag(&self, key: &[u8]) -> Option<Tag> {
        let (of_length, of_pairs) = self.secrets.split_first()?;
        let (pairs, rest) = key.as_chunks::<16>();
        let (of_rest, of_pairs) = of_pairs.get(..=pairs.len())?.split_last()?;
        // The last word overlaps the one before it. Among keys of one length, every byte is in a word.
        let last = match key.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => key.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        let mut tag = add([0; 2], of_length, [key.len() as u64, last]);
        for (secrets, pair) in of_pairs.iter().zip(pairs) {
            let pair = u128::from_le_bytes(*pair);
            tag = add(tag, secrets, [pair as u64, (pair >> 64) as u64]);
        }
        if let Some((word, [_, ..])) = rest.split_first_chunk() {
            tag = add(tag, of_rest, [u64::from_le_bytes(*word), 0]);
        }
        Some(tag)
    }

    pub(super) fn find(&self, tag: Tag) -> Option<Owner> {
        self.probe(tag).map_while(OnceLock::get).find(|(known, _)| *known == tag).map(|(_, owner)| *owner)
    }

    pub(super) fn remember(&self, tag: Tag, owner: Owner) {
        // A slot that another core is taking at this moment counts as taken.
        let _ = self.probe(tag).find(|slot| slot.set((tag, owner)).is_ok());
    }

    fn probe(&self, [sum, _]: Tag) -> impl Iterator<Item = &OnceLock<(Tag, Owner)>> {
        let mask = self.slots.len() - 1; // a power of two
        let first = (sum >> 64) as usize; // the most evenly distributed bits of a product
        (0..PROBES).filter_map(move |n| self.slots.get(first.wrapping_add(n) & mask))
    }
}

/// Adds the product of a pair of words to both sums.
#[inline]
fn add([a, b]: Tag, [of_a, of_b]: &Secrets, words: [u64; 2]) -> Tag {
    let product = |secrets: &[u64; 2]| {
        u128::from(words[0].wrapping_add(secrets[0])) * u128::from(words[1].wrapping_add(secrets[1]))
    };
    [a.wrapping_add(product(of_a)), b.wrapping_add(product(of_b))]
}

/// The hash of a key as written in the config.
pub(super) fn parse_key(text: &str) -> Result<Hash, &'static str> {
    if let Some(digits) = text.strip_prefix("sha256:") {
        return hex::decode(digits)
            .and_then(|hash| hash.try_into().ok())
            .ok_or("is not a hash: expected `sha256:` and 64 hexadecimal digits");
    }
    match text {
        "" => Err("is empty"),
        _ if !text.bytes().all(|b| b.is_ascii_graphic()) => Err(
            "holds a space, a control byte or a letter that is not ASCII, which no client can send in a header",
        ),
        _ => Ok(Sha256::digest(text.as_bytes()).into()),
    }
}

/// The first digits of a hash, enough to distinguish the keys of a consumer.
pub(super) fn first_digits(hash: &Hash) -> [u8; 8] {
    let mut digits = [0; 8];
    digits.copy_from_slice(hex::encode(&hash[..4]).as_bytes());
    digits
}

pub(super) fn halves(hash: &Hash) -> (u128, u128) {
    let (half, rest) = hash.split_first_chunk().expect("a hash is longer than its half");
    let rest = rest.first_chunk().expect("a hash has two halves");
    (u128::from_le_bytes(*half), u128::from_le_bytes(*rest))
}
