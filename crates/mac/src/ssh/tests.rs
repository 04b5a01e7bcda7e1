//! How long a host is waited for, and how often it is dialled.

use std::future::pending;
use std::io::{Error, ErrorKind};
use std::sync::Mutex;

use super::*;

/// A host that nobody reaches: when it was dialled.
struct Nobody {
    began: Instant,
    dials: Mutex<Vec<u64>>,
    /// It takes connections and says nothing; else it refuses them.
    hangs: bool,
}

impl Nobody {
    fn new(hangs: bool) -> Self {
        Self { began: Instant::now(), dials: Mutex::default(), hangs }
    }

    fn dials(&self) -> Vec<u64> {
        self.dials.lock().unwrap().clone()
    }
}

impl Dial for Nobody {
    fn dial<'a>(&'a self, _: &'a Target) -> Answer<'a, Session> {
        self.dials.lock().unwrap().push(self.began.elapsed().as_secs());
        Box::pin(async move {
            let (address, within) = ("nobody:22".to_owned(), CONNECT_TIMEOUT);
            if self.hangs {
                sleep(within).await;
                return Err(MacError::Unreachable { address, within, source: None });
            }
            let source = Some(Error::from(ErrorKind::ConnectionRefused));
            Err(MacError::Unreachable { address, within, source })
        })
    }
}

fn target(port: u16) -> Target {
    let key = KeyPair::from_seed([1; 32], "").unwrap().private;
    let user = "m1".parse().unwrap();
    Target { address: "127.0.0.1".into(), port, user, key, pinned: None }
}

async fn waited(host: &Nobody, seconds: u64) -> (u64, String) {
    let patience = Duration::from_secs(seconds);
    let began = Instant::now();
    let error = wait_for_ssh(host, &target(22), patience).await.map(drop).unwrap_err();
    (began.elapsed().as_secs(), error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_port_that_refuses_is_dialled_to_the_end_of_the_patience() {
    for (patience, dials) in [
        (0, vec![0]),
        (1, vec![0, 1]),
        (30, vec![0, 2, 6, 14, 30]),
        (60, vec![0, 2, 6, 14, 30, 60]),
        (100, vec![0, 2, 6, 14, 30, 60, 90, 100]),
    ] {
        let host = Nobody::new(false);
        let (took, said) = waited(&host, patience).await;
        assert_eq!((took, host.dials()), (patience, dials), "{said}");
        assert!(!said.contains("within"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_hangs_is_given_up_when_the_patience_ends_and_that_is_what_is_said() {
    for (patience, took, dials) in
        [(0, 3, vec![0]), (2, 3, vec![0]), (20, 20, vec![0, 17]), (60, 60, vec![0, 17, 36, 57])]
    {
        let host = Nobody::new(true);
        let (waited, said) = waited(&host, patience).await;
        assert_eq!((waited, host.dials()), (took, dials), "{patience}: {said}");
        assert!(said.contains(&format!("within {took} s")), "{said}");
    }
}

#[tokio::test]
async fn no_dial_of_a_host_comes_before_its_turn() {
    // B15: refused at once, so that nothing but the pace keeps two dials apart.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let (ssh, began) = (Ssh::default(), Instant::now());
    for _ in 0..2 {
        let refused = ssh.clone().dial(&target(port)).await.map(drop).unwrap_err();
        assert!(matches!(refused, MacError::Unreachable { .. }), "{refused}");
    }
    assert!(began.elapsed() >= DIAL_EVERY, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_be_dialled_is_cut_off_by_whoever_waits() {
    struct Never;
    impl Dial for Never {
        fn dial<'a>(&'a self, _: &'a Target) -> Answer<'a, Session> {
            Box::pin(pending())
        }
    }
    let began = Instant::now();
    let patience = Duration::from_secs(20);
    let error = wait_for_ssh(&Never, &target(22), patience).await.map(drop).unwrap_err();
    assert_eq!(began.elapsed(), patience);
    assert!(error.to_string().contains("127.0.0.1:22 within 20 s"), "{error}");
}
