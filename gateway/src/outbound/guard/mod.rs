//! Which URLs and which addresses may be dialed. Pure: nothing here asks a name server.

mod addresses;
mod allowed;

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use self::addresses::{Reach, reach};
pub(super) use self::allowed::Entry;

/// Why something is not dialed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    #[error("this is no URL that can be dialed: write https://host/path or http://host/path")]
    Url,
    #[error("only https:// and http:// are dialed")]
    Scheme,
    #[error("a URL must hold no user name and no password: name a Secret under auth")]
    UserInfo,
    #[error(
        "{0} is a name of this cluster or machine: name it under allowedHosts of the ToolSource"
    )]
    LocalName(String),
    #[error("{0} is a private address: name it under allowedHosts of the ToolSource")]
    PrivateAddress(String),
    #[error("{0} leads to a private address: name it under allowedHosts of the ToolSource")]
    LeadsToPrivate(String),
    #[error(
        "{0} is this machine itself: name that very address, or localhost, under allowedHosts of the ToolSource"
    )]
    Loopback(String),
    #[error(
        "{0} is where a cloud hands out credentials: it is dialed only if allowedHosts names that very address"
    )]
    Metadata(String),
    #[error("{0} is no address of a single host")]
    Never(String),
    #[error(
        "`{0}` under allowedHosts is no host name, *.name, address or range, with a port or without"
    )]
    Entry(String),
}

/// The rules of one upstream.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    allowed: Vec<Entry>,
    /// What belongs to the cluster although its addresses look public.
    private: Vec<IpNet>,
}

/// Parses a URL as it is dialed, or says why it cannot be. What a lenient parser would put right is refused.
pub fn parse(text: &str) -> Result<Url, Blocked> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    if text.contains(is_odd) {
        return Err(Blocked::Url);
    }
    let (scheme, rest) = text.split_once(':').ok_or(Blocked::Url)?;
    if !["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        return Err(Blocked::Scheme);
    }
    let authority = rest.strip_prefix("//").ok_or(Blocked::Url)?;
    if authority.is_empty() || authority.starts_with('/') {
        return Err(Blocked::Url);
    }
    let url = Url::parse(text).map_err(|_| Blocked::Url)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Blocked::UserInfo);
    }
    Ok(url)
}

impl Guard {
    pub(super) fn new(allowed_hosts: &[String], private: &[IpNet]) -> Result<Self, Blocked> {
        let allowed = allowed_hosts.iter().map(|entry| entry.parse());
        Ok(Self {
            allowed: allowed.collect::<Result<_, _>>()?,
            private: private.to_vec(),
        })
    }

    /// Says what can be said before any name is resolved.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), Blocked> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Blocked::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Blocked::UserInfo);
        }
        let host = url.host().ok_or(Blocked::Url)?;
        let port = url.port_or_known_default().ok_or(Blocked::Url)?;
        self.check_host(&host.to_owned(), port)
    }

    /// Whether `host` may be asked for at all; what a name resolves to is [`Guard::check_answers`]'s matter.
    pub(super) fn check_host(&self, host: &Host<String>, port: u16) -> Result<(), Blocked> {
        match host {
            Host::Ipv4(address) => self.check_address((*address).into(), port, false, None),
            Host::Ipv6(address) => self.check_address((*address).into(), port, false, None),
            Host::Domain(name) => {
                let name = plain(name);
                if name.is_empty() {
                    return Err(Blocked::Url);
                }
                if is_local(name) && !self.is_named(name, port) {
                    return Err(Blocked::LocalName(name.to_owned()));
                }
                Ok(())
            }
        }
    }

    /// Whether every address that `name` resolved to may be dialed. One bad answer spoils all.
    pub(super) fn check_answers(
        &self,
        name: &str,
        port: u16,
        answers: &[IpAddr],
    ) -> Result<(), Blocked> {
        let name = plain(name);
        let is_named = self.is_named(name, port);
        answers
            .iter()
            .try_for_each(|answer| self.check_address(*answer, port, is_named, Some(name)))
    }

    /// Whether an entry of `allowedHosts` means this very name.
    fn is_named(&self, name: &str, port: u16) -> bool {
        let name = plain(name);
        self.allowed.iter().any(|entry| entry.names(name, port))
    }

    /// Whether the search domains of a cluster may complete `name`: only of names that somebody wrote down, and that
    /// are short.
    pub(super) fn may_search(&self, name: &str, port: u16) -> bool {
        let is_short = plain(name).matches('.').count() <= 1 || is_local(plain(name));
        is_short && self.is_named(name, port)
    }

    fn check_address(
        &self,
        address: IpAddr,
        port: u16,
        is_named: bool,
        name: Option<&str>,
    ) -> Result<(), Blocked> {
        let address = address.to_canonical();
        let reach = match reach(address) {
            Reach::Public if self.private.iter().any(|range| range.contains(&address)) => {
                Reach::Private
            }
            reach => reach,
        };
        let mut ranges = self
            .allowed
            .iter()
            .filter_map(|entry| entry.range(address, port));
        let is_allowed = match reach {
            Reach::Public => true,
            Reach::Private => is_named || ranges.next().is_some(),
            Reach::Loopback => {
                (is_named && name.is_some_and(is_localhost))
                    || ranges.any(|range| is_loopback(&range))
            }
            Reach::Metadata => ranges.any(|range| range.prefix_len() == range.max_prefix_len()),
            Reach::Never => false,
        };
        if is_allowed {
            return Ok(());
        }
        let said = name.map_or_else(|| address.to_string(), str::to_owned);
        Err(match (reach, name) {
            (Reach::Public | Reach::Private, None) => Blocked::PrivateAddress(said),
            (Reach::Public | Reach::Private, Some(_)) => Blocked::LeadsToPrivate(said),
            (Reach::Loopback, _) => Blocked::Loopback(said),
            (Reach::Metadata, _) => Blocked::Metadata(said),
            (Reach::Never, _) => Blocked::Never(said),
        })
    }
}

/// A name without the dot that says it is whole.
pub(super) fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether `name` is this machine by definition, whatever a name server says.
pub(super) fn is_localhost(name: &str) -> bool {
    let name = plain(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// Names that mean something only inside a cluster, a machine or a local network.
fn is_local(name: &str) -> bool {
    const ENDS: [&str; 7] = [
        ".svc",
        ".local",
        ".localhost",
        ".internal",
        ".localdomain",
        ".lan",
        ".home.arpa",
    ];
    !name.contains('.') || ENDS.iter().any(|end| name.ends_with(end))
}

/// A range that somebody wrote to mean this machine, unlike `0.0.0.0/0`.
fn is_loopback(range: &IpNet) -> bool {
    match range {
        IpNet::V4(range) => range.network().is_loopback() && range.prefix_len() >= 8,
        IpNet::V6(range) => range.prefix_len() == 128,
    }
}

#[cfg(test)]
mod tests;
