//! For which hosts a Secret is: the annotation `chandlery.dev/allowed-hosts`, held against a URL.

use std::net::Ipv6Addr;

/// What the annotation says: hosts with commas between them, each `host`, `host:port` or `*.suffix`.
///
/// Without a port, every port of the host is meant. `*.suffix` is every name that ends in `.suffix`, and not the suffix
/// itself. What cannot be read allows nothing, and neither does an empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHosts(Vec<Place>);

/// A host, in lower case, and its port where one is written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    host: String,
    port: Option<u16>,
}

impl AllowedHosts {
    pub fn parse(annotation: &str) -> Self {
        let places = annotation.split(',').filter_map(|text| {
            let place = place(text.trim())?;
            let name = place.host.strip_prefix("*.").unwrap_or(&place.host);
            is_host(name).then_some(place)
        });
        Self(places.collect())
    }

    /// Whether the Secret may be shown to the host that `url` names. A URL that two readers could read differently is
    /// allowed by nothing.
    pub fn allow(&self, url: &str) -> bool {
        let default_port = match url.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => 443,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => 80,
            _ => return false,
        };
        let Some(Place { host, port }) = place(authority(url)) else {
            return false;
        };
        let port = port.unwrap_or(default_port);
        is_host(&host)
            && self.0.iter().any(|allowed| {
                let is_host = match allowed.host.strip_prefix('*') {
                    Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
                    None => allowed.host == host,
                };
                is_host && allowed.port.is_none_or(|allowed| allowed == port)
            })
    }
}

/// Host and port of a URL, as they are written.
pub(super) fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` and a bare v6 address; `None` where the port is none.
fn place(text: &str) -> Option<Place> {
    let (host, port) = if text.parse::<Ipv6Addr>().is_ok() {
        (text, None)
    } else if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':')?),
        };
        host.parse::<Ipv6Addr>().ok()?;
        (host, port)
    } else {
        text.split_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port)))
    };
    let port = match port {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse().ok()?)
        }
        Some(_) => return None,
        None => None,
    };
    let host = match host.parse::<Ipv6Addr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    };
    Some(Place { host, port })
}

fn is_host(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    text.parse::<Ipv6Addr>().is_ok()
        || (!text.is_empty() && !text.starts_with('.') && text.bytes().all(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_allows_the_hosts_that_it_names() {
        for (annotation, url, expected) in [
            ("crm.example", "https://crm.example", true),
            ("crm.example", "https://crm.example/", true),
            ("crm.example", "http://CRM.example:8080/a?b", true),
            ("crm.example", "https://crm.example.", true),
            ("CRM.Example", "https://crm.example", true),
            ("crm.example", "https://crm.example.evil", false),
            ("crm.example", "https://evil-crm.example", false),
            ("crm.example", "https://a.crm.example", false),
            ("a.example, crm.example ,", "https://crm.example", true),
            ("crm.example:443", "https://crm.example/", true),
            ("crm.example:443", "http://crm.example/", false),
            ("crm.example:443", "https://crm.example:8443/", false),
            ("*.example", "https://crm.example", true),
            ("*.example", "https://a.crm.example:1", true),
            ("*.example:443", "https://crm.example", true),
            ("*.example:443", "https://crm.example:1", false),
            ("*.example", "https://example", false),
            ("*.example", "https://crm.example.evil", false),
            ("*", "https://crm.example", false),
            ("*.", "https://crm.example", false),
            ("a*.example", "https://ab.example", false),
            ("", "https://crm.example", false),
            (" , ", "https://crm.example", false),
            ("https://crm.example", "https://crm.example", false),
            ("crm.example/mcp", "https://crm.example/mcp", false),
            ("10.0.0.1:80", "http://10.0.0.1", true),
            ("[fd00::1]:8080", "http://[FD00:0::1]:8080/", true),
            ("fd00::1", "http://[fd00::1]/", true),
            // What somebody may read differently.
            ("crm.example", "https://crm.example@evil.example/", false),
            ("crm.example", "https://evil.example\\@crm.example/", false),
            ("crm.example", "https://crm.example\\.evil.example/", false),
            ("crm.example", "https://crm.example%2eevil/", false),
            ("crm.example", "https://crm.example:/", false),
            ("crm.example", "https://crm.example:99999/", false),
            ("crm.example", "https://crm.example:+80/", false),
            ("crm.example", "ftp://crm.example/", false),
            ("crm.example", "crm.example", false),
        ] {
            let allowed = AllowedHosts::parse(annotation).allow(url);
            assert_eq!(allowed, expected, "{annotation:?} allows {url}");
        }
    }
}
