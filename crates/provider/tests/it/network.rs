//! What lies between the provider and its endpoint: proxies and TLS.

use crate::http::{
    HEAD, PATIENCE, drain, finish, provider, read_request, send, server, settings, text,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tenure_core::error::ErrorClass;
use tenure_provider::HttpProvider;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

const FAR: &str = "http://model.example.invalid/v1";

/// Runs one ignored test of this binary as a process of its own, with proxy settings in its environment.
async fn child(test: &str, environment: &[(&str, &str)]) -> bool {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--ignored", "--nocapture"])
        .kill_on_drop(true);
    for name in [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "REQUEST_METHOD",
    ] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    let output = tokio::time::timeout(PATIENCE * 3, command.output())
        .await
        .unwrap()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("1 passed") || !output.status.success(),
        "the child ran no test: {text}"
    );
    output.status.success()
}

#[tokio::test]
async fn far_hosts_go_through_the_proxy_unless_excepted() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let proxy = server(move |mut socket| {
        let saw = saw.clone();
        async move {
            saw.send(read_request(&mut socket).await.0).unwrap();
            let answer = format!("{HEAD}{}{}data: [DONE]\n\n", text("by proxy"), finish());
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let proxy = proxy.trim_end_matches("/v1").to_owned();
    assert!(
        child(
            "network::child_reaches_a_far_host",
            &[("HTTP_PROXY", &proxy)]
        )
        .await
    );
    let head = seen.recv().await.unwrap();
    assert!(
        head.starts_with(&format!("post {FAR}/chat/completions")),
        "{head}"
    );
    let excepted = [
        ("HTTP_PROXY", proxy.as_str()),
        ("NO_PROXY", "example.invalid"),
    ];
    assert!(
        !child("network::child_reaches_a_far_host", &excepted).await,
        "the host does not exist"
    );
    assert!(
        child(
            "network::child_reaches_a_near_host",
            &[("HTTP_PROXY", &proxy), ("ALL_PROXY", &proxy)]
        )
        .await
    );
    assert!(seen.try_recv().is_err(), "loopback is never proxied");
}

#[tokio::test]
#[ignore = "run by another test, with a proxy in its environment"]
async fn child_reaches_a_far_host() {
    if std::env::var_os("HTTP_PROXY").is_none() {
        return; // Not run by its parent.
    }
    let (said, finished, error) = drain(send(&provider(FAR)).await.unwrap()).await;
    assert_eq!((said.as_str(), finished, error), ("by proxy", true, None));
}

#[tokio::test]
#[ignore = "run by another test, with a proxy in its environment"]
async fn child_reaches_a_near_host() {
    let url = server(|mut socket| async move {
        read_request(&mut socket).await;
        let answer = format!("{HEAD}{}{}data: [DONE]\n\n", text("direct"), finish());
        socket.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    assert_eq!(
        drain(send(&provider(&url)).await.unwrap()).await.0,
        "direct"
    );
}

fn tls_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/tls")
        .join(name)
}

/// A TLS server with the certificate in `tls/`; every connection gets one whole answer.
fn tls_server() -> String {
    let chain = vec![CertificateDer::from_pem_file(tls_file("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(tls_file("server.key")).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, socket.unwrap());
            let mut request = Vec::new();
            let mut chunk = [0; 4096];
            while !request.ends_with(b"}") {
                match stream.read(&mut chunk) {
                    Ok(n) if n > 0 => request.extend_from_slice(&chunk[..n]),
                    _ => break,
                }
            }
            let answer = format!("{HEAD}{}{}data: [DONE]\n\n", text("sealed"), finish());
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    format!("https://localhost:{port}/v1")
}

#[tokio::test]
async fn an_own_authority_is_trusted_through_ca_file_only() {
    let url = tls_server();
    let refused = match HttpProvider::new(settings(&url)) {
        Ok(provider) => send(&provider).await.err().unwrap(),
        // A machine without any system certificate cannot even begin.
        Err(error) => panic!("{error}"),
    };
    assert_eq!(refused.class, ErrorClass::Unsent);
    assert!(refused.message.contains("ca_file"), "{refused}");
    let mut trusting = settings(&url);
    trusting.ca_file = Some(tls_file("ca.pem"));
    let provider = HttpProvider::new(trusting).unwrap();
    assert_eq!(
        drain(send(&provider).await.unwrap()).await,
        ("sealed".to_owned(), true, None)
    );
}
