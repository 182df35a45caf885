//! What kind of an address an address is, in whichever way it is written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How freely an address may be dialed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// Anybody's address on the internet.
    Public,
    /// Somebody's own network, or a range that is not for the internet.
    Private,
    Loopback,
    /// Where clouds hand out credentials to whoever asks.
    Metadata,
    /// No single host's address.
    Never,
}

const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Of an address, or of the IPv4 address that an IPv6 one stands for.
pub(super) fn reach(address: IpAddr) -> Reach {
    match address.to_canonical() {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    if METADATA_V4.contains(&address) {
        return Reach::Metadata;
    }
    match address.octets() {
        [0, ..] | [224..=239, ..] | [255, 255, 255, 255] => Reach::Never,
        [127, ..] => Reach::Loopback,
        // Private use, shared by carriers, link-local.
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] | [169, 254, ..] => {
            Reach::Private
        }
        // Protocol assignments, documentation, relays of 6to4, measurements.
        [192, 0, 0 | 2, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..] => Reach::Private,
        // Reserved, yet some clouds give them to pods.
        [240..=255, ..] => Reach::Private,
        _ => Reach::Public,
    }
}

/// Only 2000::/3 is given out for the internet, and not all of it to hosts.
fn reach_v6(address: Ipv6Addr) -> Reach {
    if METADATA_V6.contains(&address) {
        return Reach::Metadata;
    }
    if address == Ipv6Addr::LOCALHOST {
        return Reach::Loopback;
    }
    if address == Ipv6Addr::UNSPECIFIED || address.is_multicast() {
        return Reach::Never;
    }
    let s = address.segments();
    let v4 = |high: u16, low: u16| reach_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match s {
        // NAT64 leads to that IPv4 address and to nothing else.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        // Compatible and translated addresses, 6to4 and Teredo: nobody needs them, so they are private at best.
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            v4(high, low).max(Reach::Private)
        }
        [0x2002, high, low, ..] => v4(high, low).max(Reach::Private),
        [0x2001, 0, high, low, _, _, inner_high, inner_low] => v4(high, low)
            .max(v4(!inner_high, !inner_low))
            .max(Reach::Private),
        // Protocol assignments and documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Reach::Private,
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Private,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    #[track_caller]
    fn check(expected: Reach, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(reach(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn each_range_has_its_reach() {
        check(
            Reach::Public,
            &[
                "1.1.1.1",
                "8.8.8.8",
                "172.15.0.1",
                "172.32.0.1",
                "100.63.0.1",
                "100.128.0.1",
                "198.17.0.1",
                "198.20.0.1",
                "2606:4700::1",
                "::ffff:8.8.8.8",
                "64:ff9b::808:808",
            ],
        );
        check(
            Reach::Private,
            &[
                "10.96.0.1",
                "172.16.0.1",
                "172.31.255.254",
                "192.168.0.1",
                "100.64.0.1",
                "169.254.0.1",
                "198.18.0.1",
                "198.19.255.255",
                "192.0.2.1",
                "240.0.0.1",
                "fd00::1",
                "fe80::1",
                "fec0::1",
                "2001:db8::1",
                "2001:10::1",
                "::8.8.8.8",
                "2002:808:808::1",
                "64:ff9b:1::1",
                "100::1",
                "::ffff:10.0.0.1",
                "4000::1",
            ],
        );
        check(
            Reach::Loopback,
            &[
                "127.0.0.1",
                "127.0.0.2",
                "127.255.255.255",
                "::1",
                "::ffff:127.0.0.1",
                "::127.0.0.1",
                "::ffff:0:127.0.0.1",
                "64:ff9b::7f00:1",
                "2002:7f00:1::",
                // Teredo: the client's address is written inverted.
                "2001:0:808:808:0:0:80ff:fffe",
            ],
        );
        check(
            Reach::Metadata,
            &[
                "169.254.169.254",
                "169.254.170.2",
                "100.100.100.200",
                "192.0.0.192",
                "168.63.129.16",
                "fd00:ec2::254",
                "64:ff9b::a9fe:a9fe",
                "::ffff:169.254.169.254",
            ],
        );
        check(
            Reach::Never,
            &[
                "0.0.0.0",
                "0.1.2.3",
                "224.0.0.1",
                "255.255.255.255",
                "::",
                "ff02::1",
            ],
        );
    }

    proptest! {
        /// P12: an IPv4 address is never dialed more freely for being written as an IPv6 one.
        #[test]
        fn an_address_within_an_address_is_judged_as_itself(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from(bits);
            let [high, low] = [(bits >> 16) as u16, bits as u16];
            assert_eq!(reach(v4.to_ipv6_mapped().into()), reach_v4(v4));
            let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
            assert_eq!(reach(nat64.into()), reach_v4(v4));
            for other in [
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0x808, 0x808, 0, 0, !high, !low),
            ] {
                assert_eq!(reach(other.into()), reach_v4(v4).max(Reach::Private), "{other}");
            }
        }
    }
}
