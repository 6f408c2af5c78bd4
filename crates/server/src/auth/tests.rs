//! Every part of a request is under its signature.

use super::*;

const PATH: &str = "/v1/node/wake";

fn life(n: u128) -> Incarnation {
    Incarnation::from_bits(n)
}

fn secret(byte: u8) -> ClusterSecret {
    ClusterSecret::new([byte; 32])
}

fn signed(body: &'static [u8]) -> HeaderMap {
    let (to, from) = (life(1), life(2));
    let request = Signed {
        method: &Method::POST,
        path: PATH,
        body,
        to: &to,
        from: &from,
        nonce: Nonce {
            generation: 3,
            counter: 4,
        },
    };
    sign(&secret(7), &request)
}

fn check(headers: &HeaderMap, body: &'static [u8]) -> Result<Caller, Unsigned> {
    let body = Bytes::from_static(body);
    verify(&secret(7), &Method::POST, PATH, headers, &body)
}

#[test]
fn a_signed_request_names_its_caller() {
    let caller = check(&signed(b"body"), b"body").unwrap();
    assert_eq!((caller.to, caller.from), (life(1), life(2)));
    assert_eq!((caller.nonce.generation, caller.nonce.counter), (3, 4));
}

#[test]
fn whatever_is_changed_breaks_the_signature() {
    let headers = signed(b"body");
    let body = Bytes::from_static(b"body");
    let verify_as = |secret: &ClusterSecret, method: &Method, path: &str, headers: &HeaderMap| {
        verify(secret, method, path, headers, &body)
    };
    let wrong = Err(Unsigned::Signature);
    assert_eq!(check(&headers, b"bodY"), wrong);
    assert_eq!(verify_as(&secret(8), &Method::POST, PATH, &headers), wrong);
    assert_eq!(verify_as(&secret(7), &Method::GET, PATH, &headers), wrong);
    let query = format!("{PATH}?x=1");
    assert_eq!(
        verify_as(&secret(7), &Method::POST, &query, &headers),
        wrong
    );
    let other = life(9).to_string();
    for (name, value) in [
        (TO, other.as_str()),
        (FROM, &other),
        (NONCE, "3.5"),
        (NONCE, "4.4"),
    ] {
        let mut changed = headers.clone();
        changed.insert(name.clone(), HeaderValue::from_str(value).unwrap());
        assert_eq!(check(&changed, b"body"), wrong, "{name}");
    }
}

#[test]
fn a_header_that_is_missing_doubled_or_malformed_is_named() {
    let names = [
        "x-tenure-to",
        "x-tenure-from",
        "x-tenure-nonce",
        "x-tenure-signature",
    ];
    for name in names {
        let mut missing = signed(b"");
        missing.remove(name);
        assert_eq!(check(&missing, b""), Err(Unsigned::Header(name)));
        let mut doubled = signed(b"");
        let value = doubled[name].clone();
        doubled.append(name, value);
        assert_eq!(check(&doubled, b""), Err(Unsigned::Header(name)));
        let mut malformed = signed(b"");
        malformed.insert(name, HeaderValue::from_static("?"));
        assert_eq!(check(&malformed, b""), Err(Unsigned::Header(name)));
    }
}

#[test]
fn the_secret_is_not_shown() {
    assert_eq!(format!("{:?}", secret(7)), "ClusterSecret(…)");
}

#[test]
fn hexadecimal_goes_there_and_back() {
    let bytes: [u8; 32] = std::array::from_fn(|n| (n * 37) as u8);
    assert_eq!(unhex(&hex(&bytes)), Some(bytes));
    assert_eq!(unhex("00"), None);
    assert_eq!(unhex(&"zz".repeat(32)), None);
}
