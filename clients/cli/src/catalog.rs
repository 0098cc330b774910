//! The operators' commands for the catalog. Each command shows the changes before it writes them.
//!
//! Services that are not in the files stay. A write is conditional on the version that was read, and an interrupted
//! command can be repeated.

use crate::args::{Catalog, Consent, Import};
use crate::bazaar;
use crate::entry::{Change, differences, id_for, service_entry, service_version, validation_errors};
use crate::exit::{Exit, Failure};
use crate::operator::Operator;
use crate::output::Output;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The maximum number of files. `MAX_MEBIBYTES` is the maximum size of a file.
const MAX_FILES: usize = 2_000;
const MAX_MEBIBYTES: u32 = 1;

/// The desired state of a service.
pub(crate) struct DesiredService {
    /// The file or host that the desired state comes from.
    pub(crate) from: String,
    pub(crate) id: String,
    pub(crate) entry: Value,
    /// The stored service. `None` if the service is new.
    pub(crate) stored: Option<Value>,
}

struct ServiceFile {
    file: String,
    id: Option<String>,
    slug: String,
    entry: Value,
}

pub(crate) async fn run(operator: &Operator, command: Catalog, output: &Output) -> Result<Exit, Failure> {
    match command {
        Catalog::Apply { path, consent } => apply(operator, &path, &consent, output).await,
        Catalog::Export { folder } => export(operator, &folder, output).await,
        Catalog::Probe { services, all } => probe(operator, &services, all, output).await,
        Catalog::Import(import) => self::import(operator, &import, output).await,
    }
}

async fn apply(operator: &Operator, path: &Path, consent: &Consent, output: &Output) -> Result<Exit, Failure> {
    let files = read_folder(path)?;
    let ids = ids_by_slug(&operator.services().await?);
    let mut desired = Vec::new();
    for ServiceFile { file, id, slug, entry } in files {
        let id = id.or_else(|| ids.get(&slug).cloned());
        let id = id.unwrap_or_else(|| id_for("catalog", &slug).to_string());
        let stored = if ids.values().any(|there| *there == id) {
            Some(operator.service(&id).await?)
        } else {
            None
        };
        desired.push(DesiredService {
            from: file,
            id,
            entry,
            stored,
        });
    }
    write_services(operator, desired, consent, output, json!({})).await
}

fn ids_by_slug(services: &[Value]) -> BTreeMap<String, String> {
    let text = |service: &Value, name: &str| service.get(name).and_then(Value::as_str).map(str::to_owned);
    services
        .iter()
        .filter_map(|service| Some((text(service, "slug")?, text(service, "id")?)))
        .collect()
}

/// Reads the files. Returns all validation errors of all files if any file is invalid.
fn read_folder(path: &Path) -> Result<Vec<ServiceFile>, Failure> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(|error| unreadable_file_failure(path, &error))?;
        files = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .take(MAX_FILES.saturating_add(1))
            .collect();
        files.sort();
    }
    if files.is_empty() || files.len() > MAX_FILES {
        let message = format!("{}: there must be 1 to {MAX_FILES} JSON files", path.display());
        return Err(Failure::Words(message));
    }
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for path in files {
        let file = path.display().to_string();
        match read_service_file(&path) {
            Ok(item) => {
                for name in std::iter::once(&item.slug).chain(&item.id) {
                    if let Some(other) = seen.insert(name.clone(), file.clone()) {
                        wrong.push(format!("{file}: {name} is in {other}, too"));
                    }
                }
                all.push(item);
            }
            Err(errors) => wrong.extend(errors.iter().map(|problem| format!("{file}: {problem}"))),
        }
    }
    if wrong.is_empty() {
        Ok(all)
    } else {
        let message = "nothing is changed, for these files are no entries of a catalog".to_owned();
        Err(Failure::Problems {
            what: message,
            problems: wrong,
        })
    }
}

fn read_service_file(path: &Path) -> Result<ServiceFile, Vec<String>> {
    let text = read_text(path, MAX_MEBIBYTES).map_err(|message| vec![message])?;
    let mut entry: Value = serde_json::from_str(&text).map_err(|error| vec![format!("it is no JSON: {error}")])?;
    let id = entry.as_object_mut().and_then(|fields| fields.remove("id"));
    let mut wrong = validation_errors(&entry);
    let parsed = id.as_ref().and_then(|id| Uuid::parse_str(id.as_str()?).ok());
    if id.is_some() && parsed.is_none() {
        wrong.push("/id: must be a UUID".to_owned());
    }
    match entry.get("slug").and_then(Value::as_str).map(str::to_owned) {
        Some(slug) if wrong.is_empty() => Ok(ServiceFile {
            file: path.display().to_string(),
            id: parsed.map(|id| id.to_string()),
            slug,
            entry,
        }),
        slug => {
            if slug.is_none() && entry.get("slug").is_some() {
                wrong.push("/slug: must be a string".to_owned());
            }
            Err(wrong)
        }
    }
}

/// Reads a text file of at most `max` MiB. The error describes why the file can't be read.
pub(crate) fn read_text(path: &Path, max: u32) -> Result<String, String> {
    let most_bytes = u64::from(max).saturating_mul(1024 * 1024);
    let mut text = String::new();
    let opened = fs::File::open(path).map_err(|error| error.to_string())?;
    let length = opened.take(most_bytes.saturating_add(1)).read_to_string(&mut text);
    let length = length.map_err(|error| error.to_string())?;
    if u64::try_from(length).unwrap_or(u64::MAX) > most_bytes {
        return Err(format!("it is longer than {max} MiB"));
    }
    Ok(text)
}

fn unreadable_file_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::Words(format!("{} can't be read: {error}", path.display()))
}

/// Shows the differences, asks for consent, and writes every entry. Returns the errors of rejected entries.
async fn write_services(
    operator: &Operator,
    services: Vec<DesiredService>,
    consent: &Consent,
    output: &Output,
    extra_output: Value,
) -> Result<Exit, Failure> {
    let changed: Vec<(DesiredService, Vec<Change>)> = services
        .into_iter()
        .map(|desired| {
            let changes = differences(desired.stored.as_ref(), &desired.entry);
            (desired, changes)
        })
        .filter(|(_, changes)| !changes.is_empty())
        .collect();
    let mut result: Vec<Value> = Vec::new();
    for (desired, changes) in &changed {
        let slug = desired.entry.get("slug").and_then(Value::as_str).unwrap_or_default();
        let message = if desired.stored.is_some() { "changes" } else { "is new" };
        output.print_text(&format!("{slug} ({}) {message}", desired.id));
        for change in changes {
            output.print_text(&format!("  {change}"));
        }
        result.push(json!({
            "id": desired.id, "slug": slug, "from": desired.from, "is_new": desired.stored.is_none(),
            "changes": changes.iter().map(Change::as_json).collect::<Vec<_>>(), "written": false,
        }));
    }
    let is_allowed = !changed.is_empty() && consent.is_given(&format!("Write {} services?", changed.len()))?;
    let (mut written, mut refused) = (0_usize, Vec::new());
    if is_allowed {
        for ((desired, _), result) in changed.iter().zip(&mut result) {
            let over = desired.stored.as_ref().map(service_version).transpose()?;
            match operator.put_service(&desired.id, over, &desired.entry).await {
                Ok(_) => {
                    written = written.saturating_add(1);
                    result["written"] = json!(true);
                }
                Err(failure) => {
                    result["error"] = failure.as_json();
                    let mut lines = vec![format!("{}: {failure}", desired.from)];
                    lines.extend(failure.lines().iter().map(|line| format!("{}: {line}", desired.from)));
                    refused.extend(lines);
                    // The error would occur for every service, so the remaining entries are not written.
                    if !is_about_the_entry(&failure) {
                        break;
                    }
                }
            }
        }
    }
    let mut document = json!({"services": result, "differences": changed.len(), "written": written});
    if let (Value::Object(document), Value::Object(beside)) = (&mut document, extra_output) {
        document.extend(beside);
    }
    output.print_result(&document, || {
        vec![match (changed.is_empty(), is_allowed) {
            (true, _) => "No difference.".to_owned(),
            (false, false) => format!("{} services differ; nothing is written.", changed.len()),
            (false, true) => format!("{written} of {} services are written.", changed.len()),
        }]
    });
    if refused.is_empty() {
        return Ok(Exit::Done);
    }
    let message = format!(
        "{} of {} services are not written",
        changed.len().saturating_sub(written),
        changed.len()
    );
    Err(Failure::Problems {
        what: message,
        problems: refused,
    })
}

/// Returns whether the error depends on the entry, so that another entry may succeed.
fn is_about_the_entry(failure: &Failure) -> bool {
    failure
        .refusal()
        .is_some_and(|rejection| matches!(rejection.status, 400 | 409 | 412 | 413 | 422 | 428))
}

async fn export(operator: &Operator, folder: &Path, output: &Output) -> Result<Exit, Failure> {
    fs::create_dir_all(folder).map_err(|source| unwritable_file_failure(folder, source))?;
    let ids = ids_by_slug(&operator.services().await?);
    for (slug, id) in &ids {
        let service = operator.service(id).await?;
        let mut file = json!({"id": id});
        if let (Value::Object(file), Value::Object(entry)) = (&mut file, service_entry(&service)) {
            file.extend(entry);
        }
        // Only letters, digits, `-` and `_` are valid in a slug.
        let name: String = slug
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let name = if name == *slug {
            name
        } else {
            slug.replace(['/', '.', '\\'], "-")
        };
        let path = folder.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&file).unwrap_or_default();
        replace_file(&path, &format!("{text}\n")).map_err(|source| unwritable_file_failure(&path, source))?;
    }
    output.print_result(&json!({"count": ids.len()}), || {
        vec![format!("{} services are in {}.", ids.len(), folder.display())]
    });
    Ok(Exit::Done)
}

/// Replaces a file atomically.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let new: PathBuf = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

fn unwritable_file_failure(path: &Path, source: io::Error) -> Failure {
    let message = path.display().to_string();
    Failure::Output { what: message, source }
}

async fn probe(operator: &Operator, services: &[String], includes_all: bool, output: &Output) -> Result<Exit, Failure> {
    let ids = ids_by_slug(&operator.services().await?);
    let desired: Vec<&String> = if includes_all {
        ids.values().collect()
    } else {
        let id_of = |service: &String| ids.get(service).or_else(|| ids.values().find(|id| *id == service));
        let unknown: Vec<String> = services
            .iter()
            .filter(|service| id_of(service).is_none())
            .cloned()
            .collect();
        if !unknown.is_empty() {
            let message = "there are no such services, and none is probed".to_owned();
            return Err(Failure::Problems {
                what: message,
                problems: unknown,
            });
        }
        services.iter().filter_map(id_of).collect()
    };
    for id in &desired {
        operator.request_probe(id).await?;
    }
    output.print_result(&json!({"asked_for": desired.len()}), || {
        vec![format!("{} services are probed in the next minutes.", desired.len())]
    });
    Ok(Exit::Done)
}

/// Imports a Bazaar listing. Operations with a payee, and services that an operator has changed, stay unchanged.
async fn import(operator: &Operator, import: &Import, output: &Output) -> Result<Exit, Failure> {
    let mut listing = bazaar::read_bazaar(import).await?;
    let services = operator.services().await?;
    let mut slugs = ids_by_slug(&services);
    let id_of = |service: &'_ Value| service.get("id").and_then(Value::as_str).map(str::to_owned);
    let there: BTreeMap<String, &Value> = services
        .iter()
        .filter_map(|listed_service| Some((id_of(listed_service)?, listed_service)))
        .collect();
    let (mut desired, mut kept) = (Vec::new(), 0_u64);
    for host in &listing.hosts {
        let id = host.id.to_string();
        let stored = match there.get(&id) {
            Some(service) if !bazaar::is_created_by_import(service) => {
                kept = kept.saturating_add(1);
                continue;
            }
            Some(_) => Some(operator.service(&id).await?),
            None => None,
        };
        let is_taken = |slug: &str| slugs.get(slug).is_some_and(|other| *other != id);
        let entry = host.entry(stored.as_ref(), &import.category, is_taken, &mut listing.refused);
        if let Some(slug) = entry.get("slug").and_then(Value::as_str) {
            // `a-b.example` and `a.b.example` have the same slug, so the second host gets a different slug.
            slugs.insert(slug.to_owned(), id.clone());
        }
        desired.push(DesiredService {
            from: host.origin.clone(),
            id,
            entry,
            stored,
        });
    }
    let rows = json!({
        "pages": listing.pages, "entries": listing.entries, "hosts": listing.hosts.len(), "kept_hosts": kept,
        "refused": listing.rejections_json(), "stopped": listing.stopped,
    });
    output.print_text(&format!(
        "{} entries on {} pages; {} hosts, of which {kept} are operators' own by now and stay as they are.",
        listing.entries,
        listing.pages,
        listing.hosts.len()
    ));
    for line in listing.lines() {
        output.print_text(&line);
    }
    write_services(operator, desired, &import.consent, output, rows).await
}
