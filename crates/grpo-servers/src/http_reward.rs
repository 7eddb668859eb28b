//! Rewards computed by HTTP servers.

mod server;
mod servers;

use std::path::PathBuf;

use grpo_data::{ConfigFault, OneOrSeveral};
use grpo_rewards::RewardKind;
use grpo_rewards::external::{Carrier, CarrierConfig, Shape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::server::Server;
use self::servers::Servers;
use crate::http_url::HttpUrl;
use crate::tls;

/// `reward.type = "http"`.
pub const HTTP_REWARD: RewardKind = RewardKind::external::<HttpConfig>("http");

/// Configuration of the reward type `http`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HttpConfig {
    /// Address, such as `http://localhost:8000/score`, without user and password and with a port
    /// from 1 to 65535, if any; redirects are not followed; several URLs for servers with identical
    /// scoring.
    #[schemars(extend("x-basic" = true))]
    url: OneOrSeveral,
    /// Components of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    components: Vec<String>,
    /// PEM file with the certificates to trust instead of Mozilla's roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

impl CarrierConfig for HttpConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        let without_files = Self { ca_file: None, ..self.clone() };
        without_files.servers().map(drop)
    }

    fn describe(&self) -> String {
        let urls: Vec<String> = self.url.as_slice().iter().map(|url| HttpUrl::shown(url)).collect();
        format!("sends completions to {}", urls.join(", "))
    }

    fn shape(&self) -> Shape {
        Shape { components: self.components.clone(), weights: None }
    }

    fn carrier(&self) -> Result<Box<dyn Carrier>, ConfigFault> {
        Ok(Box::new(Servers::new(self.servers()?)))
    }
}

impl HttpConfig {
    fn servers(&self) -> Result<Vec<Server>, ConfigFault> {
        let urls = self.url.as_slice();
        if urls.is_empty() {
            let message = "reward.url is an empty list; expected at least one URL";
            return Err(ConfigFault::from_sentence("", message));
        }
        let tls = tls::config(self.ca_file.as_deref()).map_err(|error| {
            let error = error.with_names(|_| Some("reward.ca_file"));
            ConfigFault::new("ca_file", error.to_string(), "")
        })?;
        urls.iter().map(|url| Server::new(url, tls.clone())).collect()
    }
}
