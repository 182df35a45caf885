//! What is said before any name is resolved. That nothing is dialed either, `tests/outbound` shows with sockets.

use proptest::prelude::{any, prop_assert_eq, proptest};

use super::*;

fn guard(allowed: &[&str]) -> Guard {
    let allowed: Vec<String> = allowed.iter().map(|entry| (*entry).to_owned()).collect();
    Guard::new(&allowed, &[]).unwrap()
}

/// Of a URL whose host resolves to `answers`.
fn say(guard: &Guard, url: &str, answers: &[&str]) -> String {
    let answers: Vec<IpAddr> = answers
        .iter()
        .map(|answer| answer.parse().unwrap())
        .collect();
    let said = parse(url).and_then(|url| {
        guard.check_url(&url)?;
        let port = url.port_or_known_default().unwrap();
        match url.host() {
            Some(Host::Domain(name)) => guard.check_answers(name, port, &answers),
            _ => Ok(()),
        }
    });
    said.map_or_else(|blocked| blocked.to_string(), |()| "dialed".to_owned())
}

#[track_caller]
fn check(allowed: &[&str], url: &str, answers: &[&str], expected: &str) {
    let said = say(&guard(allowed), url, answers);
    assert!(said.contains(expected), "{url} by {allowed:?}: {said}");
}

#[test]
fn public_addresses_are_dialed() {
    check(
        &[],
        "https://api.example.com/v1",
        &["8.8.8.8", "2606:4700::1"],
        "dialed",
    );
    check(&[], "http://1.1.1.1/", &[], "dialed");
    check(
        &[],
        "HTTPS://API.example.com:8443/?q=a b"
            .replace(' ', "%20")
            .as_str(),
        &["1.1.1.1"],
        "dialed",
    );
}

#[test]
fn one_bad_answer_spoils_all() {
    check(
        &[],
        "https://api.example.com/",
        &["8.8.8.8", "10.0.0.1"],
        "leads to a private address",
    );
    check(
        &[],
        "https://api.example.com/",
        &["8.8.8.8", "127.0.0.1"],
        "this machine itself",
    );
    check(
        &[],
        "https://api.example.com/",
        &["8.8.8.8", "169.254.169.254"],
        "hands out credentials",
    );
    check(
        &[],
        "https://api.example.com/",
        &["::ffff:10.0.0.1"],
        "leads to a private address",
    );
}

#[test]
fn what_an_agent_reads_names_no_address_that_nobody_wrote() {
    let said = say(&guard(&[]), "https://api.example.com/", &["10.1.2.3"]);
    assert!(
        !said.contains("10.1.2.3") && said.contains("api.example.com"),
        "{said}"
    );
}

#[test]
fn private_addresses_are_dialed_if_the_source_says_so() {
    check(
        &["crm.shop.svc"],
        "http://crm.shop.svc/",
        &["10.96.7.7"],
        "dialed",
    );
    check(
        &["crm.shop.svc"],
        "http://crm.shop.svc.:80/",
        &["198.18.0.7"],
        "dialed",
    );
    check(
        &["crm.shop.svc:8080"],
        "http://crm.shop.svc/",
        &["10.96.7.7"],
        "a name of this cluster",
    );
    check(
        &["*.shop.svc"],
        "http://crm.shop.svc/",
        &["10.96.7.7"],
        "dialed",
    );
    check(&["10.0.0.0/8"], "http://10.1.2.3/", &[], "dialed");
    check(
        &["10.0.0.0/8"],
        "http://intranet.example.com/",
        &["10.1.2.3"],
        "dialed",
    );
    check(&["10.0.0.0/8"], "http://[::ffff:10.1.2.3]/", &[], "dialed");
    check(
        &["10.0.0.0/8"],
        "http://192.168.1.1/",
        &[],
        "is a private address",
    );
    check(&["fd00::/8"], "http://[fd00::1]/", &[], "dialed");
    check(
        &["intranet.example.com"],
        "http://intranet.example.com/",
        &["10.1.2.3"],
        "dialed",
    );
    check(
        &["intranet.example.com"],
        "http://10.1.2.3/",
        &[],
        "is a private address",
    );
}

#[test]
fn names_of_the_cluster_need_a_name_in_the_list_whatever_they_resolve_to() {
    for url in [
        "http://crm/",
        "http://crm.shop.svc/",
        "http://crm.shop.svc.cluster.local/",
        "http://metadata.google.internal/",
        "http://LOCALHOST./",
        "http://x.localhost/",
    ] {
        check(&[], url, &["8.8.8.8"], "a name of this cluster or machine");
        check(
            &["0.0.0.0/0"],
            url,
            &["8.8.8.8"],
            "a name of this cluster or machine",
        );
    }
}

#[test]
fn this_machine_and_metadata_are_dialed_only_if_meant() {
    check(
        &["localhost"],
        "http://localhost:9000/",
        &["127.0.0.1", "::1"],
        "dialed",
    );
    check(&["127.0.0.1:9000"], "http://127.0.0.1:9000/", &[], "dialed");
    check(
        &["127.0.0.1:9000"],
        "http://127.0.0.1/",
        &[],
        "this machine itself",
    );
    check(&["127.0.0.0/8"], "http://127.1/", &[], "dialed");
    check(&["::1"], "http://[::1]/", &[], "dialed");
    check(
        &["0.0.0.0/0", "::/0"],
        "http://127.0.0.1/",
        &[],
        "this machine itself",
    );
    check(
        &["0.0.0.0/0", "::/0"],
        "http://[::1]/",
        &[],
        "this machine itself",
    );
    check(
        &["api.example.com"],
        "http://api.example.com/",
        &["127.0.0.1"],
        "this machine itself",
    );
    check(
        &["api.example.com"],
        "http://api.example.com/",
        &["168.63.129.16"],
        "hands out credentials",
    );
    check(
        &["169.254.0.0/16"],
        "http://169.254.169.254/",
        &[],
        "hands out credentials",
    );
    check(
        &["fd00::/8"],
        "http://[fd00:ec2::254]/",
        &[],
        "hands out credentials",
    );
    check(
        &["64:ff9b::/96"],
        "http://[64:ff9b::a9fe:a9fe]/",
        &[],
        "hands out credentials",
    );
    check(
        &["169.254.169.254"],
        "http://169.254.169.254/",
        &[],
        "dialed",
    );
    check(
        &["0.0.0.0/0"],
        "http://0/",
        &[],
        "no address of a single host",
    );
}

#[test]
fn ranges_of_the_cluster_that_look_public_are_private() {
    let guard = Guard::new(&[], &["34.118.224.0/20".parse().unwrap()]).unwrap();
    assert!(say(&guard, "http://34.118.224.1/", &[]).contains("private address"));
    assert_eq!(say(&guard, "http://34.118.0.1/", &[]), "dialed");
}

/// P12: what a lenient parser would put right is refused, and no text repeats what may hold a password.
#[test]
fn malformed_urls_are_refused() {
    for url in [
        "",
        "example.com",
        "//example.com/",
        "http:127.0.0.1/",
        "http:///etc/passwd",
        "http://",
        "http://exa mple.com/",
        "http://example.com\\@127.0.0.1/",
        "http://1.1.1.1 @127.0.0.1/",
        "http://127.0.0.1%00.example.com/",
        " http://example.com/",
        "http://example.com/\n",
        "http://example.com:99999/",
    ] {
        check(&[], url, &["8.8.8.8"], "no URL that can be dialed");
    }
    for url in [
        "http://user:hunter2@example.com/",
        "http://127.0.0.1:80@example.com/",
    ] {
        check(&[], url, &["8.8.8.8"], "no user name");
        assert!(!say(&guard(&[]), url, &[]).contains("hunter2"));
    }
    for url in [
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_SET",
        "jar:http://x/",
        "ws://a.example/",
    ] {
        check(&[], url, &[], "only https:// and http://");
    }
}

proptest! {
    /// P12: however an address is spelled, it is judged as the address.
    #[test]
    fn every_spelling_of_an_address_gets_its_answer(bits in any::<u32>(), private in any::<bool>()) {
        let bits = if private { bits & 0x00ff_ffff | 0x7f00_0000 } else { bits };
        let [a, b, c, d] = bits.to_be_bytes();
        let rest = bits & 0x00ff_ffff;
        let wide: String = format!("{a}.{b}.{c}.{d}")
            .chars()
            .map(|c| c.to_digit(10).map_or('。', |digit| char::from_u32(0xff10 + digit).unwrap()))
            .collect();
        let escaped: String = format!("{a}.{b}.{c}.{d}").bytes().map(|b| format!("%{b:02x}")).collect();
        let guard = guard(&[]);
        let plain = say(&guard, &format!("http://{a}.{b}.{c}.{d}/"), &[]);
        for host in [
            format!("{bits}"),
            format!("{bits:#x}"),
            format!("{bits:#X}").replace("0X", "0x"),
            format!("0{bits:o}"),
            format!("{a}.{rest}"),
            format!("0{a:o}.{b:#x}.{c}.{d}"),
            format!("{a}.{b}.{c}.{d}."),
            wide,
            escaped,
            format!("[::ffff:{a}.{b}.{c}.{d}]"),
        ] {
            prop_assert_eq!(&say(&guard, &format!("http://{}/", &host), &[]), &plain, "{}", host);
        }
    }
}
