//! The checks in Rego, compiled for the virtual machine of regorus, its faster engine.

use purser_bench::Case;
use regorus::languages::rego::compiler::Compiler;
use regorus::rvm::vm::RegoVM;
use regorus::{Engine, Value};
use serde_json::{Map, json};
use std::collections::BTreeSet;

const FAILED: &str = "data.purser.failed";

pub(crate) struct Rego {
    vm: RegoVM,
    input: Value,
}

impl Rego {
    pub(crate) fn prepare(case: &Case) -> Self {
        let policies: Map<_, _> = case
            .policies()
            .map(|(slug, policy)| (slug.to_owned(), policy))
            .collect();
        let data = Value::from_json_str(&json!({"agent": case.agent(), "policies": policies}).to_string()).unwrap();
        let mut engine = Engine::new();
        engine
            .add_policy("policy.rego".to_owned(), include_str!("policy.rego").to_owned())
            .unwrap();
        let compiled = engine.compile_with_entrypoint(&FAILED.into()).unwrap();
        let program = Compiler::compile_from_policy(&compiled, &[FAILED]).unwrap();
        let mut vm = RegoVM::new();
        vm.load_program(program);
        vm.set_data(data).unwrap();
        Self {
            vm,
            input: Value::from_json_str(&case.request().to_string()).unwrap(),
        }
    }

    pub(crate) fn run(&mut self) -> Value {
        self.vm.set_input(self.input.clone());
        self.vm.execute().unwrap()
    }

    /// The names of the checks that failed.
    pub(crate) fn decide(&mut self) -> BTreeSet<String> {
        let failed = self.run();
        let names = failed
            .as_set()
            .unwrap()
            .iter()
            .map(|name| name.as_string().unwrap().to_string());
        names.collect()
    }
}
