//! Serves the Lambda function `mcp` with the tools that MCP's conformance suite calls (`clients/mcp/test.sh`).
#![expect(clippy::print_stdout, reason = "the address is for the script that started it")]

use purser_client::Purser;
use purser_mcp::{KeyFrom, Providers, Tools};
use purser_mcp_function::stateless_service;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
    PaginatedRequestParams, ResourceContents, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpListener;

/// A PNG image of one pixel, and a WAV file without samples.
const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// The names of the tools that the suite calls.
const FIXTURES: [&str; 6] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
];
const SCHEMA_FIXTURE: &str = "json_schema_2020_12_tool";

#[derive(Clone)]
struct WithFixtures(Tools);

impl ServerHandler for WithFixtures {
    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = self.0.list_tools(page, context).await?;
        let plain = json!({"type": "object", "properties": {}});
        let fixtures = FIXTURES.map(|name| tool(name, &plain));
        list.tools.extend(fixtures);
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {"type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": false
        });
        list.tools.push(tool(SCHEMA_FIXTURE, &schema));
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = || ContentBlock::text("This is a simple text response for testing.");
        let image = || ContentBlock::image(IMAGE, "image/png");
        let resource = || {
            let contents = ResourceContents::text("This is an embedded resource content.", "test://embedded-resource");
            ContentBlock::resource(contents.with_mime_type("text/plain"))
        };
        let blocks = match request.name.as_ref() {
            "test_simple_text" => vec![text()],
            "test_image_content" => vec![image()],
            "test_audio_content" => vec![ContentBlock::audio(SOUND, "audio/wav")],
            "test_embedded_resource" => vec![resource()],
            "test_multiple_content_types" => vec![text(), image(), resource()],
            "test_error_handling" => return Ok(CallToolResult::error(vec![text()]).into()),
            _ => return self.0.call_tool(request, context).await,
        };
        Ok(CallToolResult::success(blocks).into())
    }
}

fn tool(name: &'static str, schema: &Value) -> Tool {
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    Tool::new(name, "A fixture of the conformance suite.", schema)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let purser = Purser::without_key("http://127.0.0.1:1")?;
    let providers = Providers::new(reqwest::Client::new(), |_| false);
    let tools = Tools::new(purser, KeyFrom::Request, providers, Duration::from_secs(25));
    let app = axum::Router::new().route_service("/mcp", stateless_service(WithFixtures(tools)));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
