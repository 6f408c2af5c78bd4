//! Asking a node's address whether anybody is there: the half of fast suspicion that needs no database (R7).

use futures::future::join_all;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use url::{Host, Url};

/// How long the whole question may take, the name's resolution with it.
const PROBE: Duration = Duration::from_millis(300);
/// What stands between a loopback address and the machine it means.
const MACHINE: &str = "#machine=";

/// The machine that a node's address names, when the address means something on that machine only.
pub(super) fn machine_of(address: &str) -> Option<&str> {
    address.split_once(MACHINE).map(|(_, machine)| machine)
}

/// Does the address refuse? Only a refusal by everything it stands for says that nobody is there; what cannot be
/// read, resolved or reached says nothing. `machine` is the asking node's own: loopback means another process on
/// every other one, whose refusal would bury a living node.
pub(super) async fn refuses(address: &str, machine: Option<&str>) -> bool {
    let (url, named) = match address.split_once(MACHINE) {
        Some((url, named)) => (url, Some(named)),
        None => (address, None),
    };
    let same_machine = named.is_some() && named == machine;
    if named.is_some() && !same_machine {
        return false;
    }
    let asked = async {
        let addresses = resolved(url).await?;
        if addresses.iter().any(|address| address.ip().is_loopback()) && !same_machine {
            return None;
        }
        let tried = addresses.iter().map(|address| async move {
            let tried = TcpStream::connect(address).await;
            matches!(tried, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
        });
        let refused = join_all(tried).await;
        Some(!refused.is_empty() && refused.iter().all(|refused| *refused))
    };
    matches!(tokio::time::timeout(PROBE, asked).await, Ok(Some(true)))
}

/// What a URL, or a bare `host:port`, stands for.
async fn resolved(url: &str) -> Option<Vec<SocketAddr>> {
    let url = match url.contains("://") {
        true => Url::parse(url),
        false => Url::parse(&format!("http://{url}")),
    };
    let url = url
        .ok()
        .filter(|url| ["http", "https"].contains(&url.scheme()))?;
    let port = url.port_or_known_default()?;
    match url.host()? {
        Host::Ipv4(ip) => Some(vec![(ip, port).into()]),
        Host::Ipv6(ip) => Some(vec![(ip, port).into()]),
        Host::Domain(name) => Some(lookup_host((name, port)).await.ok()?.collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A port that nothing listens on, and one that something does.
    fn doors(host: &str) -> Option<(u16, u16, TcpListener)> {
        let open = TcpListener::bind((host, 0)).ok()?;
        let shut = TcpListener::bind((host, 0)).ok()?;
        let port = |door: &TcpListener| door.local_addr().ok().map(|at| at.port());
        Some((port(&shut)?, port(&open)?, open))
    }

    #[tokio::test]
    async fn what_nodes_tell_is_understood() {
        let (shut, open, _door) = doors("127.0.0.1").unwrap();
        for form in [
            "http://127.0.0.1:PORT#machine=m1",
            "https://127.0.0.1:PORT#machine=m1",
            "http://localhost:PORT/#machine=m1",
            "127.0.0.1:PORT#machine=m1",
        ] {
            let of = |port: u16| form.replace("PORT", &port.to_string());
            assert!(refuses(&of(shut), Some("m1")).await, "{form}");
            assert!(!refuses(&of(open), Some("m1")).await, "{form}");
        }
        let Some((shut, open, _door)) = doors("::1") else {
            return;
        };
        let of = |port| format!("http://[::1]:{port}#machine=m1");
        assert!(refuses(&of(shut), Some("m1")).await);
        assert!(!refuses(&of(open), Some("m1")).await);
    }

    #[tokio::test]
    async fn loopback_elsewhere_says_nothing() {
        let (shut, _, _door) = doors("127.0.0.1").unwrap();
        let bound = format!("http://127.0.0.1:{shut}#machine=m1");
        let free = format!("http://127.0.0.1:{shut}");
        for machine in [None, Some("m2")] {
            assert!(!refuses(&bound, machine).await, "{machine:?}");
            assert!(!refuses(&free, machine).await, "{machine:?}");
        }
        assert!(!refuses(&free, Some("m1")).await, "it names no machine");
    }

    #[tokio::test]
    async fn what_cannot_be_read_or_resolved_says_nothing() {
        for address in [
            "",
            "/run/node.sock",
            "http://",
            "ftp://127.0.0.1#machine=m1",
            "http://no-such-host.invalid:1",
            "#machine=m1",
        ] {
            assert!(!refuses(address, Some("m1")).await, "{address}");
        }
    }

    #[tokio::test]
    async fn a_port_left_out_is_that_of_the_scheme() {
        for (url, port) in [
            ("http://10.0.0.1", 80),
            ("https://10.0.0.1/", 443),
            ("10.0.0.1", 80),
            ("https://[fd00::1]:9", 9),
        ] {
            assert_eq!(resolved(url).await.unwrap()[0].port(), port, "{url}");
        }
    }
}
