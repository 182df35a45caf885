//! The entries of `allowedHosts`.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use url::Host;

use super::Blocked;

/// One entry: a host name, `*.` and a name, an address or a range, and perhaps a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::outbound) struct Entry {
    what: What,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Name(String),
    /// Every name that ends with it; it begins with a dot.
    Below(String),
    Range(IpNet),
}

impl Entry {
    /// Whether `name`, in lower case and without a dot at its end, is meant.
    pub(in crate::outbound) fn names(&self, name: &str, port: u16) -> bool {
        self.at(port)
            && match &self.what {
                What::Name(own) => own == name,
                What::Below(end) => name.len() > end.len() && name.ends_with(end.as_str()),
                What::Range(_) => false,
            }
    }

    /// The range that `address` lies in, if this is one.
    pub(in crate::outbound) fn range(&self, address: IpAddr, port: u16) -> Option<IpNet> {
        match self.what {
            What::Range(range) if self.at(port) && range.contains(&address) => Some(range),
            _ => None,
        }
    }

    fn at(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for Entry {
    type Err = Blocked;

    fn from_str(entry: &str) -> Result<Self, Blocked> {
        let refused = || Blocked::Entry(entry.to_owned());
        let text = entry.trim();
        if let Some(range) = range(text) {
            return Ok(Self {
                what: What::Range(range),
                port: None,
            });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| refused())?)),
            None => (text, None),
        };
        let what = match host.strip_prefix('*') {
            Some(end) if end.starts_with('.') => {
                What::Below(format!(".{}", name(&end[1..]).ok_or_else(refused)?))
            }
            Some(_) => return Err(refused()),
            None => match range(host) {
                Some(range) => What::Range(range),
                None => What::Name(name(host).ok_or_else(refused)?),
            },
        };
        Ok(Self { what, port })
    }
}

/// `10.0.0.0/8`, `10.1.2.3`, `::1`, `[::1]` and `[fd00::]/8`.
fn range(text: &str) -> Option<IpNet> {
    let text = match text.strip_prefix('[') {
        None => text.to_owned(),
        Some(rest) => match rest.split_once(']')? {
            (address, "") => address.to_owned(),
            (address, length) if length.starts_with('/') => format!("{address}{length}"),
            _ => return None,
        },
    };
    let range = text
        .parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    range.ok().map(|range| range.trunc())
}

/// A host name as URLs have it after parsing. What only a URL's parser would take for an address is no name.
fn name(text: &str) -> Option<String> {
    match Host::parse(text) {
        Ok(Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(&name);
            (!name.is_empty() && !name.starts_with('.') && !name.contains('*'))
                .then(|| name.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_exact_or_below() {
        assert!(entry("crm.shop.svc").names("crm.shop.svc", 80));
        assert!(entry("CRM.shop.svc.").names("crm.shop.svc", 80));
        assert!(!entry("crm.shop.svc").names("x.crm.shop.svc", 80));
        assert!(entry("*.shop.svc").names("crm.shop.svc", 80));
        assert!(!entry("*.shop.svc").names("shop.svc", 80));
        assert!(!entry("*.shop.svc").names("evilshop.svc", 80));
        assert!(entry("crm.shop.svc:8080").names("crm.shop.svc", 8080));
        assert!(!entry("crm.shop.svc:8080").names("crm.shop.svc", 80));
    }

    #[test]
    fn ranges_may_have_ports_and_brackets() {
        let lies = |text: &str, address: &str, port| {
            entry(text).range(address.parse().unwrap(), port).is_some()
        };
        assert!(lies("10.0.0.0/8", "10.1.2.3", 80));
        assert!(lies("10.1.2.3/8", "10.9.9.9", 80));
        assert!(lies("10.0.0.0/8:8080", "10.1.2.3", 8080));
        assert!(!lies("10.0.0.0/8:8080", "10.1.2.3", 80));
        assert!(lies("127.0.0.1:9000", "127.0.0.1", 9000));
        assert!(lies("::1", "::1", 80));
        assert!(lies("[::1]:9000", "::1", 9000));
        assert!(!lies("[::1]:9000", "::1", 80));
        assert!(lies("fd00::/8", "fd00::1", 80));
        assert!(lies("[fd00::]/8:443", "fd00::1", 443));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in [
            "",
            "*",
            "*.",
            "*x.svc",
            "a.*.svc",
            "http://a",
            "a:b",
            "a:70000",
            "a/8",
            "10.0.0.0/33",
            "127.1",
            "0x7f000001",
            "user@host",
            "a b",
        ] {
            assert!(text.parse::<Entry>().is_err(), "{text}");
        }
    }
}
