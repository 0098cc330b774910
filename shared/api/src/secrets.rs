//! Secrets, from Secrets Manager. They live in memory only, and wipe it when they go.

use aws_sdk_secretsmanager::{Client, operation::get_secret_value::GetSecretValueError};
use aws_types::SdkConfig;
use purser_domain::{Error, Result};
use std::error::Error as StdError;
use zeroize::Zeroizing;

/// Reads secrets.
#[derive(Clone, Debug)]
pub struct Secrets(Client);

impl Secrets {
    /// Secrets of the configured account.
    pub fn new(config: &SdkConfig) -> Self {
        Self(Client::new(config))
    }

    /// The current value of a secret that is a text. An error names the secret and never holds any of its value.
    pub async fn text(&self, arn: &str) -> Result<Zeroizing<String>> {
        let text = self.text_at(arn, "AWSCURRENT").await?;
        text.ok_or_else(|| Error::internal(READING, format!("`{arn}`: does not exist")))
    }

    /// The value before the current one; `None` for a secret that was never rotated.
    pub async fn previous_text(&self, arn: &str) -> Result<Option<Zeroizing<String>>> {
        self.text_at(arn, "AWSPREVIOUS").await
    }

    /// The value with that label, which rotation moves when a new value is ready.
    async fn text_at(&self, arn: &str, stage: &str) -> Result<Option<Zeroizing<String>>> {
        let request = self.0.get_secret_value().secret_id(arn).version_stage(stage);
        let answer = match request.send().await {
            Ok(answer) => answer,
            // Of the secret and of the label alike (API reference, `GetSecretValue`, "Errors").
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(GetSecretValueError::is_resource_not_found_exception) =>
            {
                return Ok(None);
            }
            // The SDK's error can hold the whole answer, so only its words are kept.
            Err(error) => return Err(Error::internal(READING, format!("`{arn}`: {}", words(&error)))),
        };
        let text = answer
            .secret_string
            .ok_or_else(|| Error::internal(READING, format!("`{arn}`: is not a text")))?;
        Ok(Some(Zeroizing::new(text)))
    }
}

const READING: &str = "reading a secret";

fn words(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Boot, Clock};
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    /// What a service that answers once, with that status and body, is understood to say.
    async fn check(status: &str, body: &'static str) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let server = thread::spawn(move || {
            let mut request = BufReader::new(listener.accept().unwrap().0);
            let (mut line, mut length) = (String::new(), 0);
            while request.read_line(&mut line).unwrap() > 2 {
                let header = std::mem::take(&mut line).to_ascii_lowercase();
                length = header
                    .strip_prefix("content-length: ")
                    .map_or(length, |text| text.trim().parse().unwrap());
            }
            request.read_exact(&mut vec![0; length]).unwrap();
            request.get_mut().write_all(answer.as_bytes()).unwrap();
        });
        let env = [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key"),
            ("SECRETS_ENDPOINT", &endpoint),
        ];
        let Boot { aws: config, .. } = Boot::new(env.into_iter().collect(), Clock::system());
        let text = Secrets::new(&config).text("arn:seed").await;
        server.join().unwrap();
        text.map(|text| text.to_string())
            .map_err(|error| format!("{error} {error:?}"))
    }

    #[tokio::test]
    async fn a_secret_is_its_current_text_over_plain_http_too() {
        assert_eq!(
            check("200 OK", r#"{"SecretString":"hunter2"}"#).await.unwrap(),
            "hunter2"
        );
    }

    #[tokio::test]
    async fn an_error_names_the_secret_and_not_its_value() {
        let rows = [
            ("200 OK", r#"{"SecretString":"hunter2","VersionStages":7}"#, "arn:seed"),
            (
                "200 OK",
                r#"{"SecretBinary":"aHVudGVyMg=="}"#,
                "`arn:seed`: is not a text",
            ),
            (
                "400 Bad Request",
                r#"{"__type":"ResourceNotFoundException","Message":"not hunter"}"#,
                "`arn:seed`: does not exist",
            ),
            (
                "400 Bad Request",
                r#"{"__type":"DecryptionFailure","Message":"no key"}"#,
                "DecryptionFailure",
            ),
        ];
        for (status, body, part) in rows {
            let error = check(status, body).await.unwrap_err();
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
        }
    }
}
