//! Checks AWS's Signature Version 4 of a request, from its description and without any code of a signer.

use sha2::{Digest, Sha256};

use crate::http::Request;

/// Why a signature does not hold; `None` when it does.
pub(crate) fn fault(request: &Request, id: &str, secret: &str) -> Option<String> {
    let given = request.header("authorization").unwrap_or_default();
    let Some(fields) = given.strip_prefix("AWS4-HMAC-SHA256 ") else {
        return Some("the authorization is no AWS4-HMAC-SHA256".into());
    };
    let field = |name: &str| {
        fields
            .split(',')
            .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
    };
    let scope: Vec<&str> = field("Credential").split('/').collect();
    let [key, day, region, service, "aws4_request"] = scope[..] else {
        return Some("Credential has to be ID/DAY/REGION/SERVICE/aws4_request".into());
    };
    let time = request.header("x-amz-date").unwrap_or_default();
    if key != id || service != "bedrock" || !time.starts_with(day) {
        return Some("the security token included in the request is invalid".into());
    }
    let signed: Vec<&str> = field("SignedHeaders").split(';').collect();
    let amazon = |name: &str| name.starts_with("x-amz-");
    let unsigned = request
        .headers
        .iter()
        .find(|(name, _)| (name == "host" || amazon(name)) && !signed.contains(&name.as_str()));
    if let Some((name, _)) = unsigned {
        return Some(format!("the header {name} has to be signed"));
    }
    let canonical = canonical(request, &signed);
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{time}\n{day}/{region}/{service}/aws4_request\n{}",
        hex(&Sha256::digest(canonical))
    );
    let mut key = hmac(format!("AWS4{secret}").as_bytes(), day.as_bytes());
    for part in [region, service, "aws4_request", &to_sign] {
        key = hmac(&key, part.as_bytes());
    }
    (hex(&key) != field("Signature")).then(|| {
        "The request signature we calculated does not match the signature you provided".into()
    })
}

/// The request as both sides write it down before they sign.
fn canonical(request: &Request, signed: &[&str]) -> String {
    let headers: String = signed
        .iter()
        .map(|name| {
            let value = request.header(name).unwrap_or_default();
            let words: Vec<&str> = value.split_whitespace().collect();
            format!("{name}:{}\n", words.join(" "))
        })
        .collect();
    format!(
        "{}\n{}\n\n{headers}\n{}\n{}",
        request.method,
        encoded(&request.path),
        signed.join(";"),
        hex(&Sha256::digest(&request.body))
    )
}

/// The path as it was sent, each of its segments encoded once more.
fn encoded(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// HMAC over SHA-256, RFC 2104.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message);
    Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner.finalize())
        .finalize()
        .to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_is_that_of_its_description() {
        // Test case 2 of RFC 4231.
        let mac = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(
            hex(&mac),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    /// `post-vanilla` of AWS's published test suite, whose service is named `service`: only its signing key and
    /// string are compared here.
    #[test]
    fn the_published_signature_comes_out() {
        let request = Request {
            method: "POST".into(),
            path: "/".into(),
            query: String::new(),
            headers: vec![
                ("host".into(), "example.amazonaws.com".into()),
                ("x-amz-date".into(), "20150830T123600Z".into()),
            ],
            body: Vec::new(),
            keep_alive: false,
        };
        let text = canonical(&request, &["host", "x-amz-date"]);
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n{}",
            hex(&Sha256::digest(text))
        );
        let mut key = hmac(b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", b"20150830");
        for part in ["us-east-1", "service", "aws4_request", &to_sign] {
            key = hmac(&key, part.as_bytes());
        }
        assert_eq!(
            hex(&key),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
    }
}
