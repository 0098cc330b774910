//! A function that only responds. `infra/sam/bench_cold.py` compares the functions with it.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let hello = async |_: LambdaEvent<Value>| Ok::<_, Error>(json!({"statusCode": 200, "body": "hello"}));
    lambda_runtime::run(service_fn(hello)).await
}
