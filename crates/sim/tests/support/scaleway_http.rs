//! A simulated Scaleway behind a real socket, and a real HTTP client of it.

use applecart_api::clock::Clock;
use applecart_scaleway::{Client, Config, Profile, http_service};
use applecart_sim::scaleway::{Scaleway, Settings};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The time in these tests, which stands still.
pub const NOW: Timestamp = Timestamp::constant(1_772_699_147, 808_092_000);

/// Serves until it is dropped.
pub struct Served {
    pub scaleway: Scaleway,
    pub url: String,
    settings: Settings,
    _server: JoinSet<std::io::Result<()>>,
}

impl Served {
    pub async fn new(settings: Settings) -> Self {
        let scaleway = Scaleway::new(settings.clone(), Clock::new(|| NOW));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        server.spawn(scaleway.clone().serve(listener));
        Self { scaleway, url, settings, _server: server }
    }

    /// A configuration with a limit of its own.
    pub fn config(&self) -> Config {
        let Settings { secret_key, project, .. } = self.settings.clone();
        Config::new(Profile::new(&self.url, secret_key, project).unwrap(), self.scaleway.clock())
    }

    pub fn client(&self) -> Client {
        Client::new(http_service().unwrap(), self.config())
    }
}
