//! The proxy's faults, seen by a plain client of a plain server.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tenure_testbed::proxy::{Door, Flow, Proxy, Way};
use tenure_testbed::wait;

/// A server that sends everything back, in upper case; each connection begins with its `greeting`.
fn echo(greeting: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.write_all(greeting.as_bytes());
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    buffer[..read].make_ascii_uppercase();
                    if stream.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(wait::PATIENCE)).unwrap();
    stream
}

/// Sends and reads as much back.
fn ask(stream: &mut TcpStream, words: &str) -> std::io::Result<String> {
    stream.write_all(words.as_bytes())?;
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(Some(wait::PATIENCE)).unwrap();
    matches!(read, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn bytes_go_through_and_are_counted_and_ends_are_passed_on() {
    let proxy = Proxy::before(echo("")).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, "hello").unwrap(), "HELLO");
    let counts = proxy.counts();
    assert_eq!(
        (counts.connections, counts.open, counts.up, counts.down),
        (1, 1, 5, 5)
    );
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    wait::until_true("a closed connection", wait::PATIENCE, || {
        proxy.counts().open == 0
    })
    .unwrap();
}

#[test]
fn a_closed_door_refuses_keeps_the_port_and_opens_again() {
    let proxy = Proxy::before(echo("")).unwrap();
    let mut old = connect(&proxy);
    assert_eq!(ask(&mut old, "a").unwrap(), "A");
    for _ in 0..3 {
        proxy.door(Door::Refuse).unwrap();
        let refused = TcpStream::connect(proxy.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(ask(&mut old, "b").unwrap(), "B", "open connections stay");
        proxy.door(Door::Open).unwrap();
        assert_eq!(ask(&mut connect(&proxy), "c").unwrap(), "C");
    }
    proxy.die().unwrap();
    assert!(ask(&mut old, "d").is_err());
    assert!(TcpStream::connect(proxy.address()).is_err());
    proxy.heal().unwrap();
    assert_eq!(ask(&mut connect(&proxy), "e").unwrap(), "E");
}

#[test]
fn a_cut_is_a_reset_and_new_connections_live() {
    let proxy = Proxy::before(echo("")).unwrap();
    let mut old = connect(&proxy);
    ask(&mut old, "a").unwrap();
    proxy.cut();
    let error = old.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(ask(&mut connect(&proxy), "b").unwrap(), "B");
}

#[test]
fn stalled_bytes_arrive_later_and_swallowed_ones_never() {
    let proxy = Proxy::before(echo("")).unwrap();
    let mut old = connect(&proxy);
    ask(&mut old, "a").unwrap();
    proxy.flow(Way::Up, Flow::Stall);
    old.write_all(b"late").unwrap();
    let mut new = connect(&proxy);
    new.write_all(b"new").unwrap();
    assert!(is_silent(&mut old));
    assert!(is_silent(&mut new));
    proxy.flow(Way::Up, Flow::Pass);
    assert_eq!(ask(&mut old, "r").unwrap(), "L");
    assert_eq!(ask(&mut new, "e").unwrap(), "N");

    proxy.flow(Way::Down, Flow::Swallow);
    let mut lost = connect(&proxy);
    lost.write_all(b"gone").unwrap();
    wait::until_true("the request's arrival", wait::PATIENCE, || {
        proxy.counts().up >= 14
    })
    .unwrap();
    assert!(is_silent(&mut lost));
    proxy.heal().unwrap();
    lost.write_all(b"more").unwrap();
    assert!(is_silent(&mut lost), "nothing can make this one whole");
    assert_eq!(ask(&mut connect(&proxy), "fresh").unwrap(), "FRESH");
}

#[test]
fn a_black_hole_takes_connections_and_even_their_end() {
    let proxy = Proxy::before(echo("hello")).unwrap();
    proxy.flows(Flow::Swallow);
    let mut stream = connect(&proxy);
    stream.write_all(b"anybody?").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(is_silent(&mut stream));
    assert_eq!(proxy.counts().up, 0);
    proxy.cut();
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

#[test]
fn delays_hold_each_byte_back_without_adding_up() {
    let proxy = Proxy::before(echo("")).unwrap();
    let mut stream = connect(&proxy);
    ask(&mut stream, "a").unwrap();
    proxy.flow(Way::Up, Flow::Delay(Duration::from_millis(300)));
    let started = Instant::now();
    for part in ["b", "c", "d", "e", "f", "g", "h", "i"] {
        stream.write_all(part.as_bytes()).unwrap();
        let sent = proxy.counts().up;
        assert_eq!(sent, 1, "it is on its way");
    }
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"BCDEFGHI");
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_millis(8 * 300), "{took:?}");
}

#[test]
fn a_connection_is_cut_after_as_many_bytes_as_asked() {
    let proxy = Proxy::before(echo("")).unwrap();
    proxy.flow(Way::Down, Flow::CutAfter(3));
    let mut stream = connect(&proxy);
    stream.write_all(b"abcdef").unwrap();
    let mut got = Vec::new();
    let end = stream.read_to_end(&mut got);
    // A reset may overtake what was sent before it, so only more would be wrong.
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(b"ABC".starts_with(&got), "{got:?}");
    assert_eq!(proxy.counts().down, 3);
}

#[test]
fn new_connections_follow_a_new_target() {
    let proxy = Proxy::before(echo("1")).unwrap();
    let first_byte = |stream: &mut TcpStream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        byte[0]
    };
    let mut old = connect(&proxy);
    assert_eq!(first_byte(&mut old), b'1');
    proxy.retarget(echo("2"));
    assert_eq!(first_byte(&mut connect(&proxy)), b'2');
    assert_eq!(ask(&mut old, "x").unwrap(), "X");
}

#[test]
fn a_target_that_is_away_is_a_reset() {
    let away = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let proxy = Proxy::before(away).unwrap();
    let end = connect(&proxy).read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_dropped_proxy_closes_everything() {
    let proxy = Proxy::before(echo("")).unwrap();
    let address = proxy.address();
    let mut stream = connect(&proxy);
    ask(&mut stream, "a").unwrap();
    drop(proxy);
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    assert!(TcpStream::connect(address).is_err());
}
