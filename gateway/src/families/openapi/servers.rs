//! Where requests go.

use serde_json::Value;
use url::Url;

use super::{Broken, Settings};

/// Where the document's requests go.
pub(super) fn base(root: &Value, settings: &Settings) -> Option<Url> {
    if let Some(base) = &settings.base_url {
        return Some(bare(base.clone()));
    }
    match root["servers"].as_array().map(Vec::as_slice) {
        // A document without servers means the place it was found at.
        None | Some([]) => usable(settings.document_url.as_ref()?.join("/").ok()?),
        Some(servers) => first(servers, settings),
    }
}

/// Where requests of one operation go whose `places` (itself, its path) have servers of their own; `None` when they go
/// where the document's go.
pub(super) fn own(places: [&Value; 2], settings: &Settings) -> Result<Option<Url>, Broken> {
    if settings.base_url.is_some() {
        return Ok(None);
    }
    let servers = |place: &&Value| {
        place["servers"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    };
    let Some(place) = places.into_iter().find(servers) else {
        return Ok(None);
    };
    let all = place["servers"].as_array().map_or(&[][..], Vec::as_slice);
    // Another server than the one that is meant would be worse than none.
    let own = first(all, settings);
    own.map(Some)
        .ok_or_else(|| Broken::new("its own servers have no URL that can be called".to_owned()))
}

fn first(servers: &[Value], settings: &Settings) -> Option<Url> {
    servers
        .iter()
        .find_map(|server| usable(parse(&filled(server)?, settings)?))
}

/// The server's URL with the defaults of its variables.
fn filled(server: &Value) -> Option<String> {
    let mut url = server["url"].as_str()?.trim().to_owned();
    for (name, variable) in server["variables"].as_object().into_iter().flatten() {
        let default = match &variable["default"] {
            Value::String(default) => default.clone(),
            Value::Null => variable["enum"][0].as_str()?.to_owned(),
            other => other.to_string(),
        };
        url = url.replace(&format!("{{{name}}}"), &default);
    }
    (!url.contains(['{', '}'])).then_some(url)
}

fn parse(url: &str, settings: &Settings) -> Option<Url> {
    match (Url::parse(url), &settings.document_url) {
        (Ok(url), _) => Some(url),
        (Err(url::ParseError::RelativeUrlWithoutBase), Some(document)) => document.join(url).ok(),
        // `api.example.com/v1`, as some write it.
        (Err(url::ParseError::RelativeUrlWithoutBase), None) => {
            let host = url.split('/').next().unwrap_or_default();
            let is_host = host.contains('.') && !host.starts_with('.');
            is_host.then(|| Url::parse(&format!("https://{url}")).ok())?
        }
        _ => None,
    }
}

fn usable(url: Url) -> Option<Url> {
    let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_user = !url.username().is_empty() || url.password().is_some();
    (is_http && !has_user).then(|| bare(url))
}

fn bare(mut url: Url) -> Url {
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(servers: Value, document: Option<&str>, expected: Option<&str>) {
        let settings = Settings {
            document_url: document.map(|url| Url::parse(url).unwrap()),
            ..Settings::default()
        };
        let base = base(&json!({"servers": servers}), &settings);
        assert_eq!(base.as_ref().map(Url::as_str), expected);
    }

    #[test]
    fn the_first_usable_server_is_the_base() {
        let document = Some("https://shop.example/specs/v1/openapi.json");
        check(
            json!([{"url": "https://api.example/v1?x#y"}]),
            None,
            Some("https://api.example/v1"),
        );
        check(
            json!([{"url": "/v2"}]),
            document,
            Some("https://shop.example/v2"),
        );
        check(
            json!([{"url": "../v2"}]),
            document,
            Some("https://shop.example/specs/v2"),
        );
        check(json!([{"url": "/v2"}]), None, None);
        check(json!([]), document, Some("https://shop.example/"));
        check(
            json!([{"url": "api.example/v1"}]),
            None,
            Some("https://api.example/v1"),
        );
        check(
            json!([{"url": "wss://api.example"}, {"url": "https://me:pw@api.example"}, {"url": "http://b.example"}]),
            None,
            Some("http://b.example/"),
        );
        check(
            json!([{"url": "https://{region}.api.example:{port}/", "variables": {"region": {"default": "eu"}, "port": {"default": 8443}}}]),
            None,
            Some("https://eu.api.example:8443/"),
        );
        check(json!([{"url": "https://{region}.api.example"}]), None, None);
    }
}
