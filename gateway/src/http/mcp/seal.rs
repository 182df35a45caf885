//! Seals what goes to clients and comes back: only a gateway that has the key can read it, make it or change it.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

/// Bytes in front of what is sealed: until when it is good, in Unix milliseconds.
const EXPIRY_LEN: usize = 8;

/// What a sealed text is about; its name stands in front of it. One that is about something else does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Our own question to a client: whether a call may run.
    Approval,
    /// The state that a tool's questions came with.
    Round,
    /// A task of a source.
    Task,
}

impl About {
    fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Round => "round",
            Self::Task => "task",
        }
    }

    /// The text without what stands in front of it; `None` when it is about something else.
    fn strip(self, text: &str) -> Option<&str> {
        text.strip_prefix(self.name())?.strip_prefix(':')
    }

    /// Whether a text claims to be about this.
    pub(super) fn is_of(self, text: &str) -> bool {
        self.strip(text).is_some()
    }

    fn aad(self, bound_to: &[&str]) -> Vec<u8> {
        let mut parts = vec![self.name()];
        parts.extend(bound_to);
        // Lengths tell the parts apart, whatever is in them.
        let parts = parts.iter().map(|part| format!("{}:{part}", part.len()));
        parts.collect::<String>().into_bytes()
    }
}

pub(super) struct Seal(LessSafeKey);

impl Seal {
    /// `None` is a key that nobody else has, and that ends with the process.
    pub(super) fn new(key: Option<&SecretString>) -> Self {
        let mut own = [0; 32];
        match key {
            // Keys are as long as people and Secrets make them.
            Some(key) => {
                let derived = Sha256::new_with_prefix(b"chandlery sealed state\n");
                own.copy_from_slice(&derived.chain_update(key.expose_secret()).finalize());
            }
            // A key of zeros would be no key.
            #[expect(
                clippy::expect_used,
                reason = "a gateway without randomness must not serve"
            )]
            None => getrandom::fill(&mut own).expect("randomness from the system"),
        }
        #[expect(
            clippy::expect_used,
            reason = "the key has the length that it must have"
        )]
        let key = UnboundKey::new(&CHACHA20_POLY1305, &own).expect("a key of 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Seals a value, readable for `lifetime` and with exactly what it is `bound_to`; visible ASCII. `None` when there
    /// is no randomness.
    pub(super) fn seal(
        &self,
        about: About,
        bound_to: &[&str],
        value: &impl Serialize,
        now: Timestamp,
        lifetime: Duration,
    ) -> Option<String> {
        let lifetime = i64::try_from(lifetime.as_millis()).ok()?;
        let until = now.as_millisecond().saturating_add(lifetime);
        let mut sealed = vec![0; NONCE_LEN];
        getrandom::fill(&mut sealed).ok()?;
        let nonce = Nonce::try_assume_unique_for_key(&sealed).ok()?;
        let mut content = until.to_be_bytes().to_vec();
        serde_json::to_writer(&mut content, value).ok()?;
        let aad = Aad::from(about.aad(bound_to));
        self.0
            .seal_in_place_append_tag(nonce, aad, &mut content)
            .ok()?;
        sealed.append(&mut content);
        let sealed = BASE64_URL_SAFE_NO_PAD.encode(sealed);
        Some(format!("{}:{sealed}", about.name()))
    }

    /// The value; `None` when it was not sealed for this, is bound to something else, or is too old.
    pub(super) fn open<T: DeserializeOwned>(
        &self,
        about: About,
        bound_to: &[&str],
        sealed: &str,
        now: Timestamp,
    ) -> Option<T> {
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(about.strip(sealed)?).ok()?;
        let (nonce, content) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut content = content.to_vec();
        let aad = Aad::from(about.aad(bound_to));
        let content = self.0.open_in_place(nonce, aad, &mut content).ok()?;
        let (until, value) = content.split_at_checked(EXPIRY_LEN)?;
        let until = i64::from_be_bytes(until.try_into().ok()?);
        (now.as_millisecond() < until).then_some(())?;
        serde_json::from_slice(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_what_was_sealed_for_the_same_opens_and_nobody_can_read_it() {
        let seal = Seal::new(Some(&"a key of the replicas".into()));
        let bound = ["uid", "crm_ask"];
        let value = "the-server's-own-state".to_owned();
        let sealed = seal
            .seal(About::Round, &bound, &value, at(0), LIFETIME)
            .unwrap();
        let inner = BASE64_URL_SAFE_NO_PAD.decode(&sealed["round:".len()..]);
        assert!(!String::from_utf8_lossy(&inner.unwrap()).contains("own-state"));
        let open = |seal: &Seal, about, bound: &[&str], sealed: &str, second| {
            seal.open::<String>(about, bound, sealed, at(second))
        };
        let replica = Seal::new(Some(&"a key of the replicas".into()));
        assert_eq!(
            open(&replica, About::Round, &bound, &sealed, 59),
            Some(value)
        );
        assert_eq!(open(&seal, About::Round, &bound, &sealed, 60), None);
        let as_task = sealed.replacen("round", "task", 1);
        assert_eq!(open(&seal, About::Task, &bound, &as_task, 1), None);
        for other in [["uid", "crm_as"], ["ui", "dcrm_ask"], ["uid2", "crm_ask"]] {
            assert_eq!(open(&seal, About::Round, &other, &sealed, 1), None);
        }
        for forged in [
            "",
            "round:",
            "round:AAAA",
            &format!("{sealed}A"),
            &sealed[6..],
        ] {
            assert_eq!(open(&seal, About::Round, &bound, forged, 1), None);
        }
        let stranger = Seal::new(None);
        assert_eq!(open(&stranger, About::Round, &bound, &sealed, 1), None);
    }
}
