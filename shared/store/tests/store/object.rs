//! Tests the catalog's compressed object: readers get a correct catalog, even if writers fail.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{Service, TrustStatus, Url};
use purser_store::{CatalogCache, CatalogTable, CatalogVersion, ObjectStored, StoreServiceResult};
use purser_testkit::{CATALOG, Emulator, Fate, Moment, Proxy, ProxyConfig, Rng, Step, sample};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

type Item = HashMap<String, AttributeValue>;
/// A text, and what happens to calls that contain the text.
type Case = (&'static str, fn(&Step<'_>) -> Fate);

const BY_OBJECT: [&str; 3] = ["GetItem", "GetItem", "BatchGetItem"];
const BY_SCAN: [&str; 3] = ["GetItem", "GetItem", "Scan"];

/// A catalog, and a proxy through which readers reach the catalog.
struct Place {
    emulator: Emulator,
    table: CatalogTable,
    proxy: Proxy,
}

impl Place {
    async fn start() -> Self {
        let emulator = Emulator::start().await;
        let proxy = Proxy::start(emulator.url.clone(), ProxyConfig::default()).await;
        Self {
            table: emulator.catalog(),
            emulator,
            proxy,
        }
    }

    /// Creates a catalog of `count` services so large that their object has several chunks, and stores the object.
    async fn with_chunks(count: u32) -> Self {
        let place = Self::start().await;
        for n in 1..=count {
            place.put(&large(n, 1)).await;
        }
        assert_eq!(place.table.store_catalog_object().await.unwrap(), ObjectStored::Stored);
        assert!(place.chunks().await.len() > 1);
        place
    }

    async fn put(&self, service: &Service) {
        assert_eq!(
            self.table.put_service(service, &sample::audit()).await.unwrap(),
            StoreServiceResult::Stored
        );
    }

    /// Returns the catalog that a new instance reads through the proxy, and the instance's calls.
    async fn read(&self) -> (Arc<CatalogVersion>, Vec<String>) {
        read(&self.emulator, &self.proxy).await
    }

    /// Returns the current responses to reads of single items, by key.
    async fn answers(&self) -> HashMap<String, Value> {
        let told = Arc::new(Mutex::new(HashMap::new()));
        let noted = Arc::clone(&told);
        self.proxy.follow(move |step| {
            let noted = Arc::clone(&noted);
            let key = step.request["Key"]["pk"]["S"].as_str().unwrap_or_default().to_owned();
            match step.moment {
                Moment::Arrived => Fate::PassOn,
                Moment::CarriedOut => Fate::Edit(Box::new(move |answer| {
                    noted.lock().unwrap().insert(key, answer.clone());
                })),
            }
        });
        self.read().await;
        let told = told.lock().unwrap();
        told.clone()
    }

    /// Returns these responses to the next reads of single items.
    fn answer(&self, answers: Vec<&Value>) {
        let mut answers: Vec<Value> = answers.into_iter().rev().cloned().collect();
        self.proxy.follow(move |step| {
            let is_read = step.moment == Moment::CarriedOut && step.call.starts_with("GetItem");
            match is_read.then(|| answers.pop()).flatten() {
                Some(answer) => Fate::Edit(Box::new(move |told| *told = answer)),
                None => Fate::PassOn,
            }
        });
    }

    /// Asserts that a reader makes these calls and gets the same services as a scan.
    async fn assert_read(&self, calls: &[&str], why: &str) {
        self.proxy.behave();
        let (edition, made) = self.read().await;
        assert_eq!(made, calls, "{why}");
        assert_eq!(edition.version, self.table.read_version().await.unwrap(), "{why}");
        let scanned = self.table.read_catalog().await.unwrap();
        assert_eq!(edition.catalog.services(), scanned.services(), "{why}");
    }

    async fn items(&self, prefix: &str) -> Vec<Item> {
        let scan = self.emulator.client.scan().table_name(CATALOG).into_paginator();
        let items: Vec<Item> = scan.items().send().collect::<Result<_, _>>().await.unwrap();
        let is_of = |item: &Item| item["pk"].as_s().unwrap().starts_with(prefix);
        items.into_iter().filter(is_of).collect()
    }

    async fn chunks(&self) -> Vec<Item> {
        self.items("CHUNK#").await
    }

    async fn head(&self) -> Item {
        self.items("OBJECT").await.remove(0)
    }

    /// Asserts that exactly the object's chunks exist.
    async fn assert_clean(&self, why: &str) {
        let head = self.head().await;
        let count: usize = head["chunks"].as_n().unwrap().parse().unwrap();
        let prefix = format!("CHUNK#{}#", head["ver"].as_n().unwrap());
        let chunks = self.chunks().await;
        assert_eq!(chunks.len(), count, "{why}");
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk["pk"].as_s().unwrap().starts_with(&prefix)),
            "{why}"
        );
    }

    async fn write(&self, item: Item) {
        let put = self.emulator.client.put_item().table_name(CATALOG);
        put.set_item(Some(item)).send().await.unwrap();
    }
}

async fn read(emulator: &Emulator, proxy: &Proxy) -> (Arc<CatalogVersion>, Vec<String>) {
    proxy.calls().take();
    let cache = CatalogCache::without_probe_results(emulator.catalog_behind(proxy));
    let edition = cache.current(sample::start()).await.unwrap();
    let calls = proxy.calls().take().into_iter().map(|call| call.operation);
    let mut calls: Vec<String> = calls.collect();
    // A scan makes one call per page.
    calls.dedup_by(|next, call| next == call && next == "Scan");
    (edition, calls)
}

/// A service of 280 KB that can't be compressed to less than half. Three of them need two chunks.
fn large(n: u32, version: u64) -> Service {
    let mut rng = Rng::from_seed(u64::from(n) * 1_000 + version);
    let words: Vec<String> = (0..17_500).map(|_| format!("{:016x}", rng.draw())).collect();
    let mut service = sample::service(sample::service_id(n.into()), &format!("lab-{n}"));
    service.version = version;
    service.operations[0].params = json!({ "text": words.concat() });
    service
}

fn any_service(rng: &mut Rng, n: u32) -> Service {
    let mut service = sample::service(sample::service_id(n.into()), &format!("lab-{n}"));
    (*rng.pick(&["Lab", "", "\u{2600} \"quoted\"\n\\ \u{0}", "\u{10ffff}"])).clone_into(&mut service.name);
    service.logo_url = rng
        .one_in(2)
        .then(|| Url::parse("https://lab.example/logo.svg").unwrap());
    service.curated = rng.one_in(2);
    service.trust_status = *rng.pick(&[TrustStatus::Listed, TrustStatus::Disabled]);
    let mut operation = service.operations.remove(0);
    for _ in 0..rng.below(4) {
        operation.max_price = rng.one_in(2).then(|| sample::units(rng.below(1 << 53)));
        operation.fetches_target = rng.one_in(2).then_some(true);
        operation.payment = operation.payment.filter(|_| rng.one_in(2));
        operation.params = json!({ "max": u64::MAX, "weight": 0.1, "deep": [[null, {"N": "1"}]] });
        service.operations.push(operation.clone());
    }
    service
}

#[tokio::test]
async fn the_catalog_object_equals_a_table_scan() {
    let place = Place::start().await;
    place.assert_read(&BY_SCAN, "nothing was ever stored").await;
    let mut rng = Rng::from_seed(1);
    let mut next = 0;
    for count in [0, 1, 2, 7, 40, 0] {
        for _ in 0..count {
            next += 1;
            place.put(&any_service(&mut rng, next)).await;
        }
        let expected = if count == 0 && next > 0 {
            ObjectStored::Present
        } else {
            ObjectStored::Stored
        };
        assert_eq!(place.table.store_catalog_object().await.unwrap(), expected);
        place.assert_read(&BY_OBJECT, &format!("{next} services")).await;
        place.assert_clean(&format!("{next} services")).await;
    }
    let place = Place::with_chunks(3).await;
    place.assert_read(&BY_OBJECT, "several chunks").await;
}

#[tokio::test]
async fn outdated_catalog_objects_are_not_used() {
    let place = Place::start().await;
    place.put(&large(1, 1)).await;
    place.table.store_catalog_object().await.unwrap();
    place.put(&large(1, 2)).await;
    place.assert_read(&BY_SCAN, "after an edit").await;
    assert_eq!(place.table.store_catalog_object().await.unwrap(), ObjectStored::Stored);
    place.assert_read(&BY_OBJECT, "made anew").await;
}

#[tokio::test]
async fn readers_of_a_replaced_catalog_object_retry_or_scan() {
    let place = Place::with_chunks(3).await;
    // A reader that gets these responses reads the head before the change and the chunks after the change.
    let before = place.answers().await;
    place.put(&large(1, 2)).await;
    place.table.store_catalog_object().await.unwrap();
    for (times, calls) in [
        (
            1,
            &["GetItem", "GetItem", "BatchGetItem", "GetItem", "BatchGetItem"][..],
        ),
        (2, &["GetItem", "GetItem", "BatchGetItem", "GetItem", "Scan"]),
    ] {
        let heads = vec![&before["OBJECT"]; times];
        place.answer([vec![&before["VERSION"]], heads].concat());
        let (edition, made) = place.read().await;
        assert_eq!(made, calls);
        assert_eq!(
            edition.catalog.services(),
            place.table.read_catalog().await.unwrap().services()
        );
    }
}

#[tokio::test]
async fn an_overtaken_catalog_writer_leaves_no_chunks() {
    let place = Place::with_chunks(3).await;
    let writer = place.emulator.catalog_behind(&place.proxy);
    let first = place.answers().await;
    place.put(&large(1, 2)).await;
    let second = place.answers().await;
    place.put(&large(1, 3)).await;
    // The change came after the writer had read the version.
    place.answer(vec![&second["VERSION"]]);
    assert_eq!(writer.store_catalog_object().await.unwrap(), ObjectStored::Overtaken);
    place.assert_clean("of the services").await;
    place.assert_read(&BY_SCAN, "the object is the first one").await;
    // The change was made and its object stored before the writer stored its own object.
    place.table.store_catalog_object().await.unwrap();
    place.answer(vec![&second["VERSION"], &first["OBJECT"], &second["VERSION"]]);
    assert_eq!(writer.store_catalog_object().await.unwrap(), ObjectStored::Overtaken);
    place.assert_clean("of the head").await;
    place.assert_read(&BY_OBJECT, "the object is the last one").await;
}

/// Each update writes its number into the name of one service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_readers_get_one_complete_catalog_version() {
    const SERVICES: u64 = 3;
    const EDITS: u64 = 12;
    let place = Arc::new(Place::start().await);
    let entry = |edit: u64| Service {
        version: edit / SERVICES + 1,
        name: edit.to_string(),
        ..large(u32::try_from(edit % SERVICES).unwrap(), 1)
    };
    for edit in 0..SERVICES {
        place.put(&entry(edit)).await;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let by_object = Arc::new(AtomicU32::new(0));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (place, is_over, by_object) = (Arc::clone(&place), Arc::clone(&is_over), Arc::clone(&by_object));
        readers.spawn(async move {
            let proxy = Proxy::start(place.emulator.url.clone(), ProxyConfig::default()).await;
            while !is_over.load(SeqCst) {
                let (edition, calls) = read(&place.emulator, &proxy).await;
                let scanned = calls.iter().any(|call| call == "Scan");
                by_object.fetch_add(u32::from(!scanned), SeqCst);
                let services = edition.catalog.services();
                let mut edits: Vec<u64> = services.iter().map(|service| service.name.parse().unwrap()).collect();
                edits.sort_by_key(|edit| edit % SERVICES);
                for (service, edit) in (0..).zip(edits) {
                    // Updates change the services in turn, so a service's name is the number of its last update up to
                    // `version`.
                    let back = (edition.version - 1 + SERVICES - service) % SERVICES;
                    let last = edition.version - 1 - back;
                    assert!(
                        edit == last || (scanned && edit > last),
                        "{edit} at {}",
                        edition.version
                    );
                }
            }
        });
    }
    for edit in SERVICES..EDITS {
        place.put(&entry(edit)).await;
        // Two writers store the object concurrently, as two functions may.
        let (one, other) = tokio::join!(place.table.store_catalog_object(), place.table.store_catalog_object());
        let stored = [one.unwrap(), other.unwrap()];
        assert!(stored.contains(&ObjectStored::Stored), "{stored:?}");
        place.assert_read(&BY_OBJECT, &format!("edit {edit}")).await;
    }
    is_over.store(true, SeqCst);
    while let Some(reader) = readers.join_next().await {
        reader.unwrap();
    }
    assert!(by_object.load(SeqCst) > 0);
    place.assert_clean("at the end").await;
}

/// The writer dies before or after each call, and no later call arrives.
#[tokio::test]
async fn interrupted_catalog_writers_leave_a_readable_catalog() {
    let place = Place::with_chunks(3).await;
    let mut version = 1;
    let mut steps = 0;
    for step in 0.. {
        let mut was_cut = false;
        for moment in [Moment::Arrived, Moment::CarriedOut] {
            version += 1;
            place.put(&large(1, version)).await;
            let cut = Arc::new(AtomicBool::new(false));
            place.proxy.follow(dying_at(step, moment, Arc::clone(&cut)));
            let stored = place.emulator.catalog_behind(&place.proxy).store_catalog_object().await;
            was_cut = cut.load(SeqCst);
            let why = format!("{moment:?} {step}: {stored:?}");
            assert_eq!(stored.is_err(), was_cut, "{why}");
            let written: u64 = place.head().await["ver"].as_n().unwrap().parse().unwrap();
            let written = written == place.table.read_version().await.unwrap();
            place
                .assert_read(if written { &BY_OBJECT } else { &BY_SCAN }, &why)
                .await;
            // The same writer finds or writes the object's head, and the next writer removes stale chunks.
            let again = place.table.store_catalog_object().await.unwrap();
            assert_eq!(again == ObjectStored::Present, written, "{why}");
            place.assert_read(&BY_OBJECT, &why).await;
            version += 1;
            place.put(&large(1, version)).await;
            assert_eq!(place.table.store_catalog_object().await.unwrap(), ObjectStored::Stored);
            place.assert_clean(&why).await;
        }
        if !was_cut {
            break;
        }
        steps = step;
    }
    // Four reads, three writes (two chunks and the head), and two deletes of old chunks.
    assert!(steps >= 8, "{steps}");
}

/// Breaks every connection from this moment of call number `step` on.
fn dying_at(step: u32, at: Moment, cut: Arc<AtomicBool>) -> impl FnMut(&Step<'_>) -> Fate + Send + 'static {
    let mut arrived = 0;
    move |met| {
        if met.moment == Moment::Arrived {
            arrived += 1;
        }
        if met.moment == at && arrived == step + 1 {
            cut.store(true, SeqCst);
        }
        if cut.load(SeqCst) { Fate::HangUp } else { Fate::PassOn }
    }
}

/// The log lines of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

#[tokio::test]
async fn damaged_catalog_objects_are_logged_and_replaced_by_scans() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false);
    let _guard = tracing::subscriber::set_default(subscriber.finish());

    let place = Place::with_chunks(3).await;
    let (head, chunks) = (place.head().await, place.chunks().await);
    // Discards the log lines of the writes.
    lines.take();
    place.assert_read(&BY_OBJECT, "undamaged").await;
    assert_eq!(lines.take(), "");

    let text = |text: &str| AttributeValue::S(text.to_owned());
    let number = |number: u32| AttributeValue::N(number.to_string());
    let with = |item: &Item, name: &str, value: AttributeValue| {
        let mut item = item.clone();
        item.insert(name.to_owned(), value);
        item
    };
    let bytes = |chunk: &Item| chunk["bytes"].as_b().unwrap().clone().into_inner();
    let mut flipped = bytes(&chunks[0]);
    flipped[1_000] ^= 1;
    let mut cut = bytes(&chunks[0]);
    cut.pop();
    let blob = |bytes: Vec<u8>| AttributeValue::B(Blob::new(bytes));
    let version = place.table.read_version().await.unwrap();
    let damages = [
        ("a bit", with(&chunks[0], "bytes", blob(flipped))),
        ("a byte less", with(&chunks[0], "bytes", blob(cut))),
        ("a chunk of another kind", with(&chunks[0], "bytes", text("x"))),
        ("a chunk less", with(&head, "chunks", number(1))),
        (
            "a chunk more",
            with(&head, "chunks", number(u32::try_from(chunks.len()).unwrap() + 1)),
        ),
        ("no chunks", with(&head, "chunks", number(0))),
        ("too many", with(&head, "chunks", number(41))),
        ("another hash", with(&head, "digest", blob(vec![0; 32]))),
        ("no hash", with(&head, "digest", text("x"))),
        (
            "another version",
            with(&head, "ver", AttributeValue::N((version + 1).to_string())),
        ),
    ];
    for (damage, item) in damages {
        let whole = if item["pk"] == head["pk"] { &head } else { &chunks[0] };
        place.write(item).await;
        place.proxy.behave();
        let (edition, calls) = place.read().await;
        assert_eq!(calls.last().unwrap(), "Scan", "{damage}");
        assert_eq!(edition.version, version, "{damage}");
        assert_eq!(
            edition.catalog.services(),
            place.table.read_catalog().await.unwrap().services()
        );
        let told = lines.take();
        assert!(told.contains("catalog.object_unreadable"), "{damage}: {told}");
        place.write(whole.clone()).await;
    }
    let lost = place.emulator.client.delete_item().table_name(CATALOG);
    lost.key("pk", chunks[0]["pk"].clone()).send().await.unwrap();
    let (_, calls) = place.read().await;
    assert_eq!(calls, ["GetItem", "GetItem", "BatchGetItem", "GetItem", "Scan"]);
    assert!(lines.take().contains("a chunk is missing"));
}

#[tokio::test]
async fn chunks_of_another_catalog_version_are_rejected() {
    let place = Place::start().await;
    place.put(&large(1, 1)).await;
    place.table.store_catalog_object().await.unwrap();
    let older = place.chunks().await.remove(0);
    place.put(&large(1, 2)).await;
    place.table.store_catalog_object().await.unwrap();
    let mut chunk = place.chunks().await.remove(0);
    chunk.insert("bytes".to_owned(), older["bytes"].clone());
    place.write(chunk).await;
    let (edition, calls) = place.read().await;
    assert_eq!(calls, ["GetItem", "GetItem", "BatchGetItem", "Scan"]);
    assert_eq!(edition.catalog.services(), [large(1, 2)]);
}

/// A read that does not end counts as failed.
#[tokio::test]
async fn failed_catalog_object_reads_fall_back_to_scans() {
    let place = Place::with_chunks(3).await;
    let scanned = place.table.read_catalog().await.unwrap();
    let cases: [Case; 3] = [
        ("OBJECT", |_| Fate::server_error()),
        ("CHUNK", |_| Fate::server_error()),
        ("CHUNK", |_| Fate::Silence),
    ];
    for (named, fate) in cases {
        place.proxy.follow(move |step| {
            let is_it = step.moment == Moment::Arrived && step.request.to_string().contains(named);
            if is_it { fate(step) } else { Fate::PassOn }
        });
        let (edition, calls) = place.read().await;
        assert_eq!(calls.last().unwrap(), "Scan", "{named}");
        assert_eq!(edition.catalog.services(), scanned.services(), "{named}");
    }
}
