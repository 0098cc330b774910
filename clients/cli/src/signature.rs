//! AWS Signature Version 4 (`SigV4`), which the gateway can require from operators (docs/runbook.md §2).

use crate::exit::Failure;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::time::SystemTime;
use url::Url;

/// The service name in signatures for API Gateway.
const SERVICE: &str = "execute-api";

/// AWS credentials and a region.
#[derive(Debug)]
pub(crate) struct Signer {
    credentials: Credentials,
    region: String,
}

impl Signer {
    /// Reads the credentials and the region from the environment. Returns `None` without credentials.
    pub(crate) fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
        url: &Url,
    ) -> Result<Option<Self>, Failure> {
        let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) else {
            return Ok(None);
        };
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.or_else(|| region_in_host(url.host_str()?)).ok_or_else(|| {
            let message = "there are AWS credentials in the environment, but no region: set AWS_REGION, or unset them";
            Failure::Words(message.to_owned())
        })?;
        let token = variable("AWS_SESSION_TOKEN");
        Ok(Some(Self {
            credentials: Credentials::new(id, secret, token, None, "environment"),
            region,
        }))
    }

    /// Returns the headers that sign a request at `time`.
    pub(crate) fn headers(&self, method: &str, url: &Url, body: &[u8], time: SystemTime) -> Result<HeaderMap, Failure> {
        let identity = self.credentials.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(SERVICE)
            .time(time)
            .settings(SigningSettings::default())
            .build()
            .map_err(|_| Failure::Signature)?
            .into();
        let request = SignableRequest::new(method, url.as_str(), std::iter::empty(), SignableBody::Bytes(body))
            .map_err(|_| Failure::Signature)?;
        let (signed, _) = sign(request, &params).map_err(|_| Failure::Signature)?.into_parts();
        let header = |(name, value): (&str, &str)| -> Result<_, Failure> {
            let name: HeaderName = name.parse().map_err(|_| Failure::Signature)?;
            let mut value: HeaderValue = value.parse().map_err(|_| Failure::Signature)?;
            value.set_sensitive(true);
            Ok((name, value))
        };
        signed.headers().map(header).collect()
    }
}

/// Extracts the region from the default host name of an API.
fn region_in_host(host: &str) -> Option<String> {
    let (_, rest) = host.split_once(".execute-api.")?;
    let (region, _) = rest.split_once(".amazonaws.com")?;
    Some(region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use sha2::{Digest as _, Sha256};
    use std::time::{Duration, UNIX_EPOCH};

    fn hex(bytes: &[u8]) -> String {
        bytes
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    fn mac(key: &[u8], text: &str) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    }

    /// The test computes the expected signature step by step, as AWS documents it.
    #[test]
    fn requests_are_signed_with_environment_credentials() {
        let url: Url = "https://abc.execute-api.eu-central-1.amazonaws.com/internal/services?changed=true"
            .parse()
            .unwrap();
        let variable = |name: &str| {
            let text = match name {
                "AWS_ACCESS_KEY_ID" => "AKIDEXAMPLE",
                "AWS_SECRET_ACCESS_KEY" => "secret",
                "AWS_SESSION_TOKEN" => "session",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let signer = Signer::from_environment(variable, &url).unwrap().unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_767_323_045);
        let headers = signer.headers("GET", &url, b"", time).unwrap();
        assert_eq!(headers["x-amz-date"], "20260102T030405Z");
        assert_eq!(headers["x-amz-security-token"], "session");

        let names = "host;x-amz-date;x-amz-security-token";
        let canonical = format!(
            "GET\n/internal/services\nchanged=true\nhost:{}\nx-amz-date:20260102T030405Z\n\
             x-amz-security-token:session\n\n{names}\n{}",
            url.host_str().unwrap(),
            hex(&Sha256::digest(b""))
        );
        let scope = "20260102/eu-central-1/execute-api/aws4_request";
        let text = format!(
            "AWS4-HMAC-SHA256\n20260102T030405Z\n{scope}\n{}",
            hex(&Sha256::digest(canonical.as_bytes()))
        );
        let parts = ["20260102", "eu-central-1", "execute-api", "aws4_request"];
        let key = parts.iter().fold(b"AWS4secret".to_vec(), |key, part| mac(&key, part));
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{scope}, SignedHeaders={names}, Signature={}",
            hex(&mac(&key, &text))
        );
        assert_eq!(headers["authorization"], expected);
        assert!(!format!("{signer:?}").contains("secret\""), "{signer:?}");
    }

    /// Without credentials, requests are not signed. Credentials without a region are an error.
    #[test]
    fn missing_credentials_or_region_prevent_signing() {
        let url: Url = "https://purser.example/".parse().unwrap();
        assert!(Signer::from_environment(|_| None, &url).unwrap().is_none());
        let some = |name: &str| (!name.contains("REGION")).then(|| "x".to_owned());
        assert!(Signer::from_environment(some, &url).is_err());
    }
}
