//! A simulated Scaleway behind a real socket.

use applecart_api::clock::Clock;
use applecart_sim::scaleway::{Scaleway, Settings};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The time in these tests, which stands still unless a lever moves it.
pub const NOW: Timestamp = Timestamp::constant(1_772_699_147, 808_092_000);

/// Serves until it is dropped.
pub struct Served {
    pub scaleway: Scaleway,
    pub url: String,
    _server: JoinSet<std::convert::Infallible>,
}

impl Served {
    pub async fn new(settings: Settings) -> Self {
        let scaleway = Scaleway::new(settings, Clock::new(|| NOW));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        server.spawn(scaleway.clone().serve(listener));
        Self { scaleway, url, _server: server }
    }
}
