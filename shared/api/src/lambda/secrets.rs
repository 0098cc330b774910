//! Reads secrets from Secrets Manager. Secrets are kept in memory only, and zeroized when dropped.

use aws_sdk_secretsmanager::{Client, operation::get_secret_value::GetSecretValueError, types::ApiErrorType};
use aws_types::SdkConfig;
use purser_domain::{Causes, Error, Result};
use zeroize::Zeroizing;

/// A client of Secrets Manager.
#[derive(Clone, Debug)]
pub struct Secrets(Client);

impl Secrets {
    /// Creates a client for the configured account.
    pub fn new(config: &SdkConfig) -> Self {
        Self(Client::new(config))
    }

    /// Reads the current values of several text secrets in one call, because concurrent calls would each need a TLS
    /// handshake.
    ///
    /// An error names the secret and contains no part of the value. The role needs
    /// `secretsmanager:BatchGetSecretValue`, and `secretsmanager:GetSecretValue` for each secret (API reference,
    /// `BatchGetSecretValue`).
    pub async fn read_all<const N: usize>(&self, arns: [&str; N]) -> Result<[Zeroizing<String>; N]> {
        let ids = arns.map(str::to_owned).to_vec();
        let response = self
            .0
            .batch_get_secret_value()
            .set_secret_id_list(Some(ids))
            .send()
            .await;
        let response = response.map_err(|error| Error::internal(READING, format!("{arns:?}: {}", Causes(&error))))?;
        let found = response.secret_values.into_iter().flatten();
        let mut found: Vec<_> = found
            .map(|value| (value.arn, value.secret_string.map(Zeroizing::new)))
            .collect();
        let mut texts: [Zeroizing<String>; N] = std::array::from_fn(|_| Zeroizing::default());
        for (text, arn) in texts.iter_mut().zip(arns) {
            let failed = |what: &str| Error::internal(READING, format!("`{arn}`: {what}"));
            // The response has the secrets in any order, and the errors separately.
            let Some((_, value)) = found.iter_mut().find(|(found, _)| found.as_deref() == Some(arn)) else {
                let errors = response.errors.as_deref().unwrap_or_default();
                let error = errors.iter().find(|error| error.secret_id() == Some(arn));
                return Err(failed(match error.and_then(ApiErrorType::error_code) {
                    Some("ResourceNotFoundException") => "the secret does not exist",
                    Some(code) => code,
                    None => "the response does not contain the secret",
                }));
            };
            *text = value.take().ok_or_else(|| failed("the secret is not a text"))?;
        }
        Ok(texts)
    }

    /// Reads the current value of a text secret. An error names the secret and contains no part of the value.
    pub async fn read(&self, arn: &str) -> Result<Zeroizing<String>> {
        let failed = |what: &str| Error::internal(READING, format!("`{arn}`: {what}"));
        let request = self.0.get_secret_value().secret_id(arn).version_stage("AWSCURRENT");
        let response = request.send().await.map_err(|error| {
            let is_missing = error
                .as_service_error()
                .is_some_and(GetSecretValueError::is_resource_not_found_exception);
            if is_missing {
                failed("the secret does not exist")
            } else {
                // Keeps only the SDK error's messages, because the error can contain the whole response.
                failed(&Causes(&error).to_string())
            }
        })?;
        let text = response
            .secret_string
            .ok_or_else(|| failed("the secret is not a text"))?;
        Ok(Zeroizing::new(text))
    }
}

const READING: &str = "reading a secret";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clients;
    use purser_testkit::SecretsManager;
    use serde_json::json;

    fn told(error: &Error) -> String {
        format!("{error} {error:?}")
    }

    #[tokio::test]
    async fn the_current_secret_version_is_read() {
        let manager = SecretsManager::new([("arn:seed", "hunter2")]);
        let secrets = test_clients::secrets(&manager).await;
        assert_eq!(*secrets.read("arn:seed").await.unwrap(), "hunter2");
        let asked = json!({"SecretId": "arn:seed", "VersionStage": "AWSCURRENT"});
        assert_eq!(manager.asked(), [asked]);
    }

    #[tokio::test]
    async fn several_secrets_are_read_in_one_call() {
        let body = r#"{"SecretValues":[{"ARN":"arn:b","SecretString":"two"},{"ARN":"arn:a","SecretString":"one"}]}"#;
        let manager = SecretsManager::default();
        manager.lie(200, body);
        let secrets = test_clients::secrets(&manager).await;
        let [one, two] = secrets.read_all(["arn:a", "arn:b"]).await.unwrap();
        assert_eq!((one.as_str(), two.as_str()), ("one", "two"));
        assert_eq!(manager.asked(), [json!({"SecretIdList": ["arn:a", "arn:b"]})]);
    }

    #[tokio::test]
    async fn errors_name_the_secret_without_its_value() {
        let rows = [
            (200, r#"{"SecretString":"hunter2","VersionStages":7}"#, "arn:seed"),
            (
                200,
                r#"{"SecretBinary":"aHVudGVyMg=="}"#,
                "`arn:seed`: the secret is not a text",
            ),
            (
                400,
                r#"{"__type":"ResourceNotFoundException","Message":"not hunter"}"#,
                "`arn:seed`: the secret does not exist",
            ),
            (
                400,
                r#"{"__type":"DecryptionFailure","Message":"no key"}"#,
                "DecryptionFailure",
            ),
        ];
        let manager = SecretsManager::default();
        let secrets = test_clients::secrets(&manager).await;
        for (status, body, part) in rows {
            manager.lie(status, body);
            let error = told(&secrets.read("arn:seed").await.unwrap_err());
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn batch_read_errors_name_the_secret_that_secrets_manager_did_not_return() {
        let rows = [
            (
                200,
                r#"{"SecretValues":[{"ARN":"arn:a","SecretString":"hunter2"}],"Errors":[{"SecretId":"arn:b","ErrorCode":"ResourceNotFoundException"}]}"#,
                "`arn:b`: the secret does not exist",
            ),
            (
                200,
                r#"{"Errors":[{"SecretId":"arn:a","ErrorCode":"AccessDeniedException"}]}"#,
                "`arn:a`: AccessDeniedException",
            ),
            (
                200,
                r#"{"SecretValues":[{"ARN":"arn:a","SecretString":"hunter2"}]}"#,
                "`arn:b`: the response does not contain the secret",
            ),
            (
                200,
                r#"{"SecretValues":[{"ARN":"arn:a","SecretString":"hunter2"},{"ARN":"arn:b","SecretBinary":"aHVudGVyMg=="}]}"#,
                "`arn:b`: the secret is not a text",
            ),
            (
                200,
                r#"{"SecretValues":[{"ARN":"arn:a","SecretString":"hunter2"},7]}"#,
                "arn:b",
            ),
            (
                400,
                r#"{"__type":"AccessDeniedException","Message":"no"}"#,
                "AccessDeniedException",
            ),
        ];
        let manager = SecretsManager::default();
        let secrets = test_clients::secrets(&manager).await;
        for (status, body, part) in rows {
            manager.lie(status, body);
            let error = told(&secrets.read_all(["arn:a", "arn:b"]).await.unwrap_err());
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
        }
    }
}
