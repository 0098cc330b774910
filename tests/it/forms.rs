//! Finds the dashboard's forms by following the links of its pages, so that the tests cover every new form.

use purser_tests::World;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use std::collections::{BTreeMap, BTreeSet};

const MAX_PAGES: usize = 150;
/// The name of the field with the session's token.
const TOKEN: &str = "form_token";

/// A browser with a session, which follows no redirects.
pub(crate) struct Browser<'a> {
    world: &'a World,
    http: Client,
    cookie: String,
    token: String,
}

/// A form with one of its buttons, as a browser would send it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageForm {
    pub(crate) action: String,
    pub(crate) fields: BTreeMap<String, String>,
    /// The names of the text fields.
    pub(crate) texts: BTreeSet<String>,
}

impl<'a> Browser<'a> {
    pub(crate) async fn start(world: &'a World, cookie: String) -> Self {
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        let token = String::new();
        let browser = Self {
            world,
            http,
            cookie,
            token,
        };
        let page = browser.open("/dashboard/freeze-all").await.unwrap();
        let (_, rest) = page.split_once(&format!("name=\"{TOKEN}\" value=\"")).unwrap();
        let token = rest.split('"').next().unwrap().to_owned();
        Self { token, ..browser }
    }

    async fn open(&self, path: &str) -> Option<String> {
        let url = format!("{}{path}", self.world.stack.base_url);
        let page = self.http.get(url).header("cookie", &self.cookie).send().await.unwrap();
        let kind = page.headers().get("content-type");
        let is_page = kind.is_some_and(|kind| kind.to_str().unwrap().starts_with("text/html"));
        (page.status() == StatusCode::OK && is_page).then_some(page.text().await.unwrap())
    }

    /// Returns every form with the method POST on the pages that links reach from the overview.
    pub(crate) async fn forms(&self) -> BTreeSet<PageForm> {
        let (mut forms, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec!["/dashboard".to_owned()];
        while let Some(path) = open.pop() {
            if seen.len() > MAX_PAGES || !seen.insert(path.clone()) {
                continue;
            }
            let Some(page) = self.open(&path).await else { continue };
            let links = page
                .split("href=\"")
                .skip(1)
                .filter_map(|rest| rest.split(['"', '#']).next());
            let links = links.filter(|path| path.starts_with("/dashboard"));
            open.extend(links.map(|path| path.replace("&amp;", "&")));
            let chunks = page
                .split("<form ")
                .skip(1)
                .filter_map(|rest| rest.split("</form>").next());
            forms.extend(chunks.filter(|form| form.contains("method=\"post\"")).flat_map(parse));
        }
        forms
    }

    /// Posts a form with this session's form token.
    pub(crate) async fn post(&self, form: &PageForm) -> reqwest::Response {
        let mut fields = form.fields.clone();
        fields.insert(TOKEN.to_owned(), self.token.clone());
        let request = self.http.post(format!("{}{}", self.world.stack.base_url, form.action));
        let request = request
            .header("cookie", &self.cookie)
            .header("sec-fetch-site", "same-origin");
        request
            .header("origin", &self.world.stack.base_url)
            .form(&fields)
            .send()
            .await
            .unwrap()
    }
}

/// Returns the form once for each of its buttons.
fn parse(form: &str) -> Vec<PageForm> {
    let (mut fields, mut texts, mut buttons) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let mut select = None;
    for tag in form.split('<').skip(1) {
        let value = attribute(tag, "value").unwrap_or_default();
        let name = attribute(tag, "name");
        let kind = attribute(tag, "type").unwrap_or_else(|| "text".to_owned());
        match (tag.split([' ', '>']).next().unwrap(), name) {
            ("input", Some(name)) if name == TOKEN => (),
            ("input", Some(name)) if kind == "checkbox" || kind == "radio" => drop(fields.insert(name, value)),
            ("input", Some(name)) => {
                if kind == "text" {
                    texts.insert(name.clone());
                }
                fields.insert(name, value);
            }
            ("textarea", Some(name)) => {
                texts.insert(name.clone());
                fields.insert(name, unescape(tag.split_once('>').unwrap().1));
            }
            ("select", name) => select = name,
            ("option", _) => {
                if let Some(name) = &select
                    && (tag.contains(" selected") || !fields.contains_key(name))
                {
                    fields.insert(name.clone(), value);
                }
            }
            ("button", Some(name)) => buttons.push(Some((name, value))),
            ("button", None) => buttons.push(None),
            _ => (),
        }
    }
    let action = attribute(form, "action").unwrap();
    let with = |button: Option<(String, String)>| PageForm {
        action: action.clone(),
        fields: fields.clone().into_iter().chain(button).collect(),
        texts: texts.clone(),
    };
    buttons.into_iter().map(with).collect()
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split('>').next()?.split_once(&format!("{name}=\""))?;
    Some(unescape(rest.split('"').next()?))
}

fn unescape(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    text.replace("&amp;", "&")
}
