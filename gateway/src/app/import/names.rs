//! A name for a source that has none yet.

use url::Url;

/// Characters of a source's name.
const NAME: usize = 40;

/// A name of a source that tells what it is: small letters, digits and hyphens, beginning with a letter.
pub(super) fn slug(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words.map(str::to_ascii_lowercase) {
        if slug.is_empty() && !word.starts_with(|c: char| c.is_ascii_lowercase()) {
            slug.push_str("api");
        }
        if slug.len() + 1 + word.len() > NAME {
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.push_str(&word);
    }
    match slug.as_str() {
        "" => "service".to_owned(),
        _ => slug,
    }
}

/// The label of a host that tells most: `linear` of `mcp.linear.app`.
pub(super) fn of_host(url: &str) -> String {
    let host = Url::parse(url).ok();
    let domain = host.as_ref().and_then(Url::domain).unwrap_or_default();
    let mut labels: Vec<&str> = domain.split('.').collect();
    if labels.len() > 1 {
        labels.pop();
    }
    let tells = |label: &&&str| !matches!(**label, "www" | "api" | "mcp" | "svc" | "cluster");
    let longest = labels.iter().filter(tells).max_by_key(|label| label.len());
    slug(longest.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_it_is() {
        for (title, name) in [
            (
                "Swagger Petstore - OpenAPI 3.0",
                "swagger-petstore-openapi-3-0",
            ),
            ("3scale", "api-3scale"),
            ("Größe", "gr-e"),
            ("", "service"),
            (
                "The quite long name of a service that has a long name",
                "the-quite-long-name-of-a-service-that",
            ),
        ] {
            assert_eq!(slug(title), name);
        }
        for (url, name) in [
            ("https://mcp.linear.app/mcp", "linear"),
            ("https://api.example.com/openapi.json", "example"),
            ("http://crm.shop.svc:8080/mcp", "shop"),
            ("http://localhost:9000/mcp", "localhost"),
            ("http://127.0.0.1:9000/mcp", "service"),
        ] {
            assert_eq!(of_host(url), name, "{url}");
        }
    }
}
