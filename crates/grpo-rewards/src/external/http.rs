//! Rewards computed by HTTP servers.

use grpo_data::{ConfigFault, OneOrSeveral};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::carrier::Carrier;
use super::protocol::Shape;
use super::section::{BuildCarrier, CarrierConfig};
use super::server::{Server, without_password};
use super::servers::Servers;

/// Configuration of the reward type `http`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpConfig {
    /// Address, such as `http://localhost:8000/score`, without user and password and with a port
    /// from 1 to 65535, if any; redirects are not followed; several URLs for servers with identical
    /// scoring.
    #[schemars(extend("x-basic" = true))]
    url: OneOrSeveral,
    /// Components of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    components: Vec<String>,
}

impl CarrierConfig for HttpConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        self.servers().map(drop)
    }

    fn describe(&self) -> String {
        let urls: Vec<String> =
            self.url.as_slice().iter().map(|url| without_password(url)).collect();
        format!("sends completions to {}", urls.join(", "))
    }
}

impl HttpConfig {
    fn servers(&self) -> Result<Vec<Server>, ConfigFault> {
        let urls = self.url.as_slice();
        if urls.is_empty() {
            let message = "reward.url is an empty list; expected at least one URL";
            return Err(ConfigFault::from_sentence("", message));
        }
        urls.iter().map(|url| Server::new(url)).collect()
    }
}

impl BuildCarrier for HttpConfig {
    fn shape(&self) -> Shape {
        Shape { components: self.components.clone(), weights: None }
    }

    fn carrier(&self) -> Result<Box<dyn Carrier>, ConfigFault> {
        Ok(Box::new(Servers::new(self.servers()?)))
    }
}
