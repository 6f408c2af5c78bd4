//! The address a node tells others.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// What is to be told to others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Advertise {
    /// The address listened on.
    #[default]
    Listened,
    /// This: `host`, `host:port`, `http://host:port` or `https://host:port`; a port left out is the one
    /// listened on.
    As(String),
}

/// No address that others could use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdvertiseError {
    /// It listens on every address, and none is named.
    #[error(
        "{0} is not an address that other nodes can use: say which one they should, with --advertise HOST:PORT"
    )]
    Unspecified(SocketAddr),
    /// The address cannot be read.
    #[error("`{0}` is not an address: write HOST:PORT, or http://HOST:PORT")]
    Malformed(String),
}

/// Where a node is reached: a URL, and for a loopback address the machine it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    url: String,
    machine: Option<String>,
}

/// What stands between the URL and the machine.
const MACHINE: &str = "#machine=";

impl PeerAddress {
    /// The URL, without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Can it be reached from `machine`? A loopback address means another process everywhere else.
    pub fn reachable_from(&self, machine: &str) -> bool {
        self.machine.as_ref().is_none_or(|own| own == machine)
    }

    /// Does it mean this machine only?
    pub fn is_local(&self) -> bool {
        self.machine.is_some()
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)?;
        match &self.machine {
            Some(machine) => write!(f, "{MACHINE}{machine}"),
            None => Ok(()),
        }
    }
}

impl FromStr for PeerAddress {
    type Err = AdvertiseError;

    fn from_str(text: &str) -> Result<Self, AdvertiseError> {
        let (url, machine) = match text.split_once(MACHINE) {
            Some((url, machine)) => (url, Some(machine.to_owned())),
            None => (text, None),
        };
        let malformed = || AdvertiseError::Malformed(text.to_owned());
        let parsed = reqwest::Url::parse(url).map_err(|_| malformed())?;
        let plain = matches!(parsed.scheme(), "http" | "https")
            && parsed.has_host()
            && parsed.username().is_empty()
            && parsed.password().is_none()
            && parsed.query().is_none()
            && parsed.fragment().is_none();
        if !plain {
            return Err(malformed());
        }
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            machine,
        })
    }
}

/// The address to be told for a port that listens on `local`.
pub(crate) fn address(
    local: SocketAddr,
    advertise: &Advertise,
    machine: &str,
) -> Result<PeerAddress, AdvertiseError> {
    let (url, loopback) = match advertise {
        Advertise::Listened if local.ip().is_unspecified() => {
            return Err(AdvertiseError::Unspecified(local));
        }
        Advertise::Listened => (format!("http://{local}"), local.ip().is_loopback()),
        Advertise::As(text) => named(text, local.port())?,
    };
    let mut address: PeerAddress = url.parse()?;
    address.machine = loopback.then(|| machine.to_owned());
    Ok(address)
}

/// A named address as a URL with a port, and whether it means this machine only.
fn named(text: &str, port: u16) -> Result<(String, bool), AdvertiseError> {
    let malformed = || AdvertiseError::Malformed(text.to_owned());
    let given = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let mut url = reqwest::Url::parse(&given).map_err(|_| malformed())?;
    let host = url.host_str().ok_or_else(malformed)?.to_owned();
    // `http://h:80` and `http://h` read the same once parsed; a port that was written is kept.
    let written = given
        .rsplit_once(':')
        .is_some_and(|(_, end)| end.trim_end_matches('/').parse::<u16>().is_ok());
    if !written {
        url.set_port(Some(port)).map_err(|()| malformed())?;
    }
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let loopback = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
    Ok((url.as_str().trim_end_matches('/').to_owned(), loopback))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(local: &str, advertise: Option<&str>) -> Result<String, AdvertiseError> {
        let advertise = advertise.map_or(Advertise::Listened, |a| Advertise::As(a.to_owned()));
        let address = address(local.parse().unwrap(), &advertise, "m1")?;
        let text = address.to_string();
        assert_eq!(
            text.parse::<PeerAddress>().unwrap(),
            address,
            "it goes there and back"
        );
        Ok(text)
    }

    #[test]
    fn what_is_listened_on_is_told_and_loopback_names_its_machine() {
        assert_eq!(told("10.0.0.5:7717", None).unwrap(), "http://10.0.0.5:7717");
        assert_eq!(
            told("127.0.0.1:4000", None).unwrap(),
            "http://127.0.0.1:4000#machine=m1"
        );
        assert_eq!(told("[fd00::1]:9", None).unwrap(), "http://[fd00::1]:9");
        let every = told("0.0.0.0:7717", None).unwrap_err();
        assert!(every.to_string().contains("--advertise"), "{every}");
    }

    #[test]
    fn a_named_address_gets_the_port_it_lacks() {
        for (given, told_as) in [
            ("node-a", "http://node-a:7717"),
            ("node-a:80", "http://node-a"),
            ("node-a:9", "http://node-a:9"),
            ("https://node-a:8443/", "https://node-a:8443"),
            ("localhost:9", "http://localhost:9#machine=m1"),
            ("[::1]:9", "http://[::1]:9#machine=m1"),
        ] {
            assert_eq!(
                told("0.0.0.0:7717", Some(given)).unwrap(),
                told_as,
                "{given}"
            );
        }
        for wrong in ["", "ftp://x:1", "a b", "http://me:pw@x:1", "http://x:1/?q"] {
            assert!(told("0.0.0.0:7717", Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_loopback_address_is_no_address_elsewhere() {
        let local: PeerAddress = "http://127.0.0.1:1#machine=m1".parse().unwrap();
        assert!(local.reachable_from("m1") && !local.reachable_from("m2"));
        let other: PeerAddress = "http://10.0.0.1:1".parse().unwrap();
        assert!(other.reachable_from("m2"));
    }
}
