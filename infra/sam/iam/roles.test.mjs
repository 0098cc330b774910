// Tests the permissions of each function on each kind of item with an IAM simulator (`function` in
// docs/guarantees.toml).
//
//     node --test infra/sam/iam/roles.test.mjs      after infra/sam/check.sh has translated the template
//
// Everything that the table does not list must be denied: each action on each kind of item, alone and within a
// transaction; with an item of another kind in the same request; and without a leading key, for which `ForAllValues`
// alone would be true. A simulator cannot test whether DynamoDB sends these condition keys as documented.
// infra/sam/calls.py tests that the functions need each permission.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { runSimulation } from "@cloud-copilot/iam-simulate";

const { Resources } = JSON.parse(readFileSync(new URL("../../../.aws-sam/translated.json", import.meta.url)));
const ACCOUNT = "123456789012";
const REGION = "us-east-1";

/** The kinds of items of each table, by partition key or its prefix (docs/data-model.toml). `Z#` stands for no kind. */
const ITEMS = {
  CatalogTable: ["CHUNK#", "OBJECT", "PROBE#", "SIGHTINGS", "SLUG#", "SVC#", "VERSION", "Z#"],
  LedgerTable: [
    "A#", "AP#", "ATTESTED#", "B#", "EVICT", "FREEZES#", "HANDOVER#", "I#", "L#", "LEVEL#", "MARKS", "O#", "OC#",
    "OD#", "OG#", "P#", "PERSON#", "PO#", "R#", "RECONCILE", "S#", "START#", "WALLET#", "WALLETS", "X#", "Z#",
  ],
  DecisionsTable: ["A#", "Z#"],
  AuditTable: ["O#", "OPERATORS", "OUTFLOWS", "P#", "W#", "Z#"],
  ThrottleTable: ["K#", "MCP#", "OAUTH#", "RL#", "Z#"],
  WebhooksTable: ["D#", "F#", "G#", "K#", "N#", "P#", "Q#", "R#", "T#", "U#", "W#", "X#", "Z#"],
  UsageTable: ["ASIDE", "BACKTESTS", "J#", "LAG", "O#", "PAYEES#", "REMINDERS", "SH#", "V#", "X#", "Z#"],
};
const READS = ["BatchGetItem", "ConditionCheckItem", "GetItem", "PartiQLSelect", "Query"];
const WRITES = ["BatchWriteItem", "DeleteItem", "PartiQLDelete", "PartiQLInsert", "PartiQLUpdate", "PutItem", "UpdateItem"];

/** The actions that may be alone or in a transaction. `ConditionCheckItem` is always in a transaction. */
const TRANSACTED = ["DeleteItem", "GetItem", "PutItem", "UpdateItem"];

const READS_CATALOG = `
  CatalogTable    CHUNK#      BatchGetItem
  CatalogTable    OBJECT      GetItem
  CatalogTable    VERSION     GetItem
  CatalogTable    *           Scan
`;
const SHOWS_CATALOG = READS_CATALOG + `
  CatalogTable    SIGHTINGS   GetItem
`;
const COUNTS_REQUESTS = `
  ThrottleTable   K#          UpdateItem
  ThrottleTable   RL#         UpdateItem
`;

/** The permissions. `tx:` means only within a transaction, and `(…)` lists the only attributes that may be used. */
const MAY = {
  AgentsFunction: SHOWS_CATALOG + COUNTS_REQUESTS + `
  LedgerTable     S#          GetItem Query
  LedgerTable     A#          BatchGetItem GetItem
  LedgerTable     B#          Query
  LedgerTable     L#          BatchGetItem Query
  LedgerTable     P#          BatchGetItem Query
  LedgerTable     START#      GetItem
  `,
  CatalogFunction: SHOWS_CATALOG,
  EventsFunction: `
  CatalogTable    *           Scan
  CatalogTable    SVC#        GetItem
  LedgerTable     A#          BatchGetItem(pk,sk,owner,name,labels,rules,former)
  LedgerTable     A#          GetItem
  LedgerTable     AP#         GetItem
  LedgerTable     I#          BatchGetItem
  LedgerTable     P#          GetItem
  LedgerTable     S#          GetItem Query
  LedgerTable     START#      GetItem
  DecisionsTable  A#          GetItem Query
  UsageTable      ASIDE       PutItem
  UsageTable      BACKTESTS   DeleteItem Query
  UsageTable      J#          Query
  UsageTable      PAYEES#     GetItem PutItem Query
  UsageTable      REMINDERS   DeleteItem PutItem Query
  UsageTable      V#          GetItem PutItem Query
  UsageTable      X#          GetItem PutItem
  `,
  HistoryFunction: `
  LedgerTable     A#          BatchGetItem(pk,sk,owner,name,labels,rules,former)
  LedgerTable     A#          GetItem ConditionCheckItem tx:UpdateItem(pk,sk,st,ver,by,aid,why)
  LedgerTable     L#          tx:UpdateItem(pk,sk,pver,aver)
  LedgerTable     P#          GetItem tx:UpdateItem(pk,sk,on,ver,by,aid,why)
  AuditTable      P#          tx:PutItem
  UsageTable      J#          PutItem
  UsageTable      LAG         PutItem
  UsageTable      O#          GetItem PutItem Query
  `,
  InternalFunction: `
  CatalogTable    *           Scan
  CatalogTable    CHUNK#      DeleteItem PutItem
  CatalogTable    OBJECT      GetItem PutItem
  CatalogTable    PROBE#      GetItem tx:UpdateItem
  CatalogTable    SLUG#       tx:DeleteItem tx:PutItem
  CatalogTable    SVC#        GetItem tx:PutItem
  CatalogTable    VERSION     GetItem tx:UpdateItem
  LedgerTable     A#          BatchGetItem GetItem
  LedgerTable     FREEZES#    Query tx:DeleteItem tx:PutItem tx:UpdateItem
  LedgerTable     HANDOVER#   GetItem tx:DeleteItem tx:PutItem
  LedgerTable     MARKS       tx:PutItem
  LedgerTable     S#          GetItem
  AuditTable      O#          PutItem Query
  AuditTable      OPERATORS   PutItem Query
  AuditTable      OUTFLOWS    Query
  AuditTable      P#          Query
  AuditTable      W#          Query
  UsageTable      PAYEES#     GetItem
  `,
  McpFunction: `
  ThrottleTable   MCP#        GetItem UpdateItem
  `,
  OauthFunction: `
  LedgerTable     A#          GetItem
  LedgerTable     OC#         GetItem tx:UpdateItem
  LedgerTable     OD#         GetItem PutItem UpdateItem
  LedgerTable     OG#         GetItem UpdateItem tx:PutItem
  ThrottleTable   OAUTH#      UpdateItem
  `,
  PaymentsFunction: READS_CATALOG + COUNTS_REQUESTS + `
  LedgerTable     A#          BatchGetItem GetItem ConditionCheckItem
  LedgerTable     AP#         BatchGetItem GetItem Query tx:PutItem tx:UpdateItem
  LedgerTable     ATTESTED#   tx:PutItem
  LedgerTable     B#          BatchGetItem GetItem Query tx:DeleteItem tx:PutItem tx:UpdateItem
  LedgerTable     EVICT       PutItem
  LedgerTable     FREEZES#    BatchGetItem
  LedgerTable     I#          BatchGetItem GetItem tx:PutItem
  LedgerTable     L#          BatchGetItem GetItem Query tx:DeleteItem tx:PutItem tx:UpdateItem
  LedgerTable     O#          GetItem tx:UpdateItem
  LedgerTable     P#          BatchGetItem GetItem Query tx:PutItem
  LedgerTable     PO#         BatchGetItem GetItem tx:PutItem tx:UpdateItem
  LedgerTable     R#          PutItem
  LedgerTable     S#          BatchGetItem GetItem ConditionCheckItem Query tx:PutItem UpdateItem
  LedgerTable     START#      GetItem
  LedgerTable     X#          GetItem PutItem
  DecisionsTable  A#          GetItem PutItem
  AuditTable      P#          tx:PutItem
  UsageTable      PAYEES#     GetItem
  `,
  PeopleFunction: SHOWS_CATALOG + COUNTS_REQUESTS + `
  CatalogTable    PROBE#      GetItem
  CatalogTable    SVC#        GetItem
  LedgerTable     A#          BatchGetItem GetItem ConditionCheckItem tx:PutItem
  LedgerTable     AP#         BatchGetItem GetItem tx:UpdateItem(pk,sk,st,ends,granted,resolved,by,note,owner,os)
  LedgerTable     B#          BatchGetItem Query tx:UpdateItem(pk,sk,pver,aver)
  LedgerTable     EVICT       PutItem
  LedgerTable     FREEZES#    GetItem Query
  LedgerTable     HANDOVER#   BatchGetItem GetItem tx:DeleteItem
  LedgerTable     I#          BatchGetItem
  LedgerTable     L#          BatchGetItem Query tx:UpdateItem(pk,sk,pver,aver)
  LedgerTable     O#          BatchGetItem
  LedgerTable     OC#         PutItem
  LedgerTable     OD#         GetItem UpdateItem
  LedgerTable     OG#         GetItem UpdateItem
  LedgerTable     P#          GetItem Query tx:PutItem
  LedgerTable     PERSON#     DeleteItem GetItem Query UpdateItem tx:PutItem
  LedgerTable     PO#         GetItem
  LedgerTable     S#          GetItem Query
  LedgerTable     START#      GetItem PutItem
  LedgerTable     WALLET#     tx:PutItem
  LedgerTable     WALLETS     UpdateItem
  LedgerTable/index/owner  *  Query
  DecisionsTable  A#          GetItem Query
  AuditTable      O#          Query
  AuditTable      P#          PutItem Query
  AuditTable      W#          Query
  ThrottleTable   K#          BatchGetItem
  WebhooksTable   D#          GetItem Query
  WebhooksTable   G#          BatchGetItem
  WebhooksTable   K#          tx:DeleteItem tx:PutItem
  WebhooksTable   P#          Query tx:DeleteItem tx:PutItem
  WebhooksTable   R#          GetItem UpdateItem
  WebhooksTable   U#          tx:DeleteItem tx:PutItem
  WebhooksTable   X#          Query
  UsageTable      BACKTESTS   PutItem
  UsageTable      J#          Query
  UsageTable      LAG         GetItem
  UsageTable      O#          Query
  UsageTable      SH#         GetItem tx:DeleteItem tx:PutItem
  UsageTable      V#          GetItem Query
  UsageTable      X#          GetItem PutItem Query
  `,
  ProbeFunction: `
  CatalogTable    *           Scan
  CatalogTable    PROBE#      GetItem UpdateItem
  CatalogTable    SIGHTINGS   GetItem PutItem
  `,
  ReconcileFunction: `
  LedgerTable     A#          GetItem
  LedgerTable     B#          GetItem Query tx:DeleteItem tx:PutItem tx:UpdateItem
  LedgerTable     EVICT       DeleteItem Query
  LedgerTable     L#          BatchGetItem GetItem Query tx:DeleteItem tx:PutItem tx:UpdateItem
  LedgerTable     LEVEL#      PutItem Query
  LedgerTable     MARKS       DeleteItem Query
  LedgerTable     RECONCILE   GetItem PutItem Query
  LedgerTable     S#          BatchGetItem Query UpdateItem(pk,sk,rs,txh,blk,settled,ct,hp,hs,unc)
  LedgerTable     WALLET#     Query
  LedgerTable     X#          PutItem Query tx:DeleteItem
  LedgerTable/index/hold   *  Query
  DecisionsTable  A#          tx:PutItem
  AuditTable      OUTFLOWS    GetItem tx:PutItem
  AuditTable      W#          tx:PutItem
  `,
  NoticesFunction: `
  CatalogTable    *           Scan
  CatalogTable    CHUNK#      BatchGetItem
  CatalogTable    OBJECT      GetItem
  CatalogTable    VERSION     GetItem
  LedgerTable     A#          BatchGetItem
  LedgerTable     AP#         BatchGetItem
  LedgerTable     P#          BatchGetItem
  LedgerTable     START#      GetItem
  LedgerTable/index/owner  *  Query
  WebhooksTable   F#          GetItem PutItem
  WebhooksTable   G#          BatchGetItem
  WebhooksTable   Q#          Query tx:DeleteItem tx:PutItem
  WebhooksTable   R#          GetItem Query
  WebhooksTable   T#          ConditionCheckItem tx:PutItem
  WebhooksTable   U#          GetItem
  WebhooksTable   X#          DeleteItem PutItem Query
  `,
  WebhooksFunction: `
  WebhooksTable   D#          GetItem PutItem
  WebhooksTable   G#          BatchGetItem PutItem
  WebhooksTable   K#          BatchGetItem
  WebhooksTable   N#          DeleteItem PutItem Query
  WebhooksTable   P#          Query
  WebhooksTable   W#          DeleteItem PutItem Query
  `,
};

/**
 * The permissions on queues: the functions' own calls, and the calls that Lambda's polling makes in a function's name.
 */
const QUEUES = {
  WebhookDeliveriesQueue: { WebhooksFunction: ["DeleteMessage", "GetQueueAttributes", "ReceiveMessage", "SendMessage"] },
  WebhookRequestsQueue: {
    PeopleFunction: ["SendMessage"],
    WebhooksFunction: ["DeleteMessage", "GetQueueAttributes", "ReceiveMessage"],
  },
  WebhookEventsQueue: { WebhooksFunction: ["DeleteMessage", "GetQueueAttributes", "ReceiveMessage"] },
  WebhooksSetAsideQueue: {},
  NoticeRequestsQueue: {
    PeopleFunction: ["SendMessage"],
    WebhooksFunction: ["SendMessage"],
    NoticesFunction: ["DeleteMessage", "GetQueueAttributes", "ReceiveMessage"],
  },
  NoticesQueue: {
    NoticesFunction: ["ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "ReceiveMessage", "SendMessage"],
  },
  NoticeEventsQueue: { NoticesFunction: ["DeleteMessage", "GetQueueAttributes", "ReceiveMessage"] },
  NoticesSetAsideQueue: {},
};
const QUEUE_ACTIONS = [
  "AddPermission", "ChangeMessageVisibility", "DeleteMessage", "DeleteQueue", "GetQueueAttributes", "PurgeQueue",
  "ReceiveMessage", "SendMessage", "SetQueueAttributes",
];

/** The functions that may read each secret. */
const READERS = {
  AgentsClientIpKeySecret: ["AgentsFunction", "McpFunction"],
  ClientIpKeySecret: ["McpFunction", "PaymentsFunction"],
  PeopleClientIpKeySecret: ["McpFunction", "PeopleFunction"],
  OperatorsSecret: ["InternalFunction"],
  NonceKeySecret: ["PaymentsFunction", "ReconcileFunction"],
  RpcUrlSecret: ["PaymentsFunction", "PeopleFunction", "ReconcileFunction"],
  OauthKeySecret: ["OauthFunction", "PeopleFunction"],
  SignInKeySecret: ["PeopleFunction"],
  StatementsKeySecret: ["EventsFunction"],
  WalletSeedSecret: ["PaymentsFunction"],
};
/** The permissions on the log's objects, by prefix. */
const LOG = {
  AgentsFunction: { GetObject: ["checkpoint", "index/", "tile/0/", "tile/0/000.p/", "tile/entries/", "tile/entries/000.p/"] },
  CatalogFunction: { GetObject: ["checkpoint", "tile/0/", "tile/0/000.p/", "trust.json"] },
  EventsFunction: {
    DeleteObject: ["batch/", "pending/", "signed/", "tile/0/000.p/", "tile/entries/000.p/"],
    GetObject: [
      "archived", "audited", "batch/", "checkpoint", "index/", "pending/", "signed/", "state.json", "tile/0/",
      "tile/0/000.p/", "tile/entries/", "tile/entries/000.p/", "trust.json",
    ],
    PutObject: [
      "archived", "audited", "batch/", "checkpoint", "index/", "pending/", "signed/", "state.json", "tile/0/",
      "tile/0/000.p/", "tile/entries/", "tile/entries/000.p/", "trust.json",
    ],
  },
  HistoryFunction: { PutObject: ["pending/"] },
  PeopleFunction: { GetObject: ["checkpoint", "index/", "tile/0/", "tile/0/000.p/", "tile/entries/", "tile/entries/000.p/"] },
};
/**
 * The functions that may invoke other functions. The functions' own policies let the gateway and the schedules invoke
 * them.
 */
const INVOKES = { PeopleFunction: ["PaymentsFunction"] };
/** The same, if operators can act in the browser. */
const INVOKES_FOR_OPERATORS = { PeopleFunction: ["InternalFunction", "PaymentsFunction"] };
/** The functions whose mappings read each stream. A record of a stream is a whole row. */
const STREAMED = {
  EventsFunction: ["CatalogTable", "DecisionsTable", "LedgerTable"],
  HistoryFunction: ["DecisionsTable", "LedgerTable"],
};
const SECRET_WRITES = [
  "DeleteResourcePolicy", "DeleteSecret", "PutResourcePolicy", "PutSecretValue", "RotateSecret", "UpdateSecret",
  "UpdateSecretVersionStage",
];

const arn = (name) => {
  const of = {
    "AWS::Events::EventBus": `events:${REGION}:${ACCOUNT}:event-bus/dev-${name}`,
    "AWS::DynamoDB::Table": `dynamodb:${REGION}:${ACCOUNT}:table/dev-${name}`,
    "AWS::IAM::Role": `iam::${ACCOUNT}:role/dev-${name}-4F2A`,
    "AWS::Lambda::Function": `lambda:${REGION}:${ACCOUNT}:function:dev-${name}-1B3C`,
    "AWS::KMS::Key": `kms:${REGION}:${ACCOUNT}:key/dev-${name}`,
    "AWS::Logs::LogGroup": `logs:${REGION}:${ACCOUNT}:log-group:dev-${name}:*`,
    "AWS::SQS::Queue": `sqs:${REGION}:${ACCOUNT}:dev-${name}`,
    "AWS::SecretsManager::Secret": `secretsmanager:${REGION}:${ACCOUNT}:secret:dev-${name}-AbCdEf`,
  }[Resources[name]?.Type];
  if (Resources[name]?.Type === "AWS::S3::Bucket") return `arn:aws:s3:::dev-${name.toLowerCase()}`;
  if (Resources[name]?.Type === "AWS::Lambda::Alias") return `${arn(Resources[name].Properties.FunctionName.Ref)}:live`;
  assert.ok(of, `no address for ${name}`);
  return `arn:aws:${of}`;
};
const STREAM = "/stream/2026-11-21T00:00:00.000";
const WRITER = `arn:aws:iam::${ACCOUNT}:role/aws-reserved/sso.amazonaws.com/Administrators`;
const STATEMENTS_KEY = `arn:aws:kms:${REGION}:${ACCOUNT}:key/statements`;
const PSEUDO = {
  SecretsWriterArn: WRITER,
  StatementsKeyArn: STATEMENTS_KEY,
  "AWS::AccountId": ACCOUNT,
  "AWS::Partition": "aws",
  "AWS::Region": REGION,
  "AWS::StackName": "dev",
  "AWS::URLSuffix": "amazonaws.com",
};

/** The simulator omits condition keys with a custom name after a colon, so the same requests use another key. */
const [USE, ALIAS] = ["kms:EncryptionContext:use", "kms:RequestAlias"];

/**
 * Returns a part of the template as IAM sees it, deployed without parameters. All conditions are false except those in
 * `holds`.
 */
const resolved = (value, holds = []) => {
  const inside = (member) => resolved(member, holds);
  if (Array.isArray(value)) return value.map(inside).filter((member) => member !== undefined);
  if (value === null || typeof value !== "object") return value;
  if (value.Ref) return value.Ref === "AWS::NoValue" ? undefined : (PSEUDO[value.Ref] ?? arn(value.Ref));
  if (value["Fn::GetAtt"]) return arn(value["Fn::GetAtt"][0]) + (value["Fn::GetAtt"][1] === "StreamArn" ? STREAM : "");
  if (value["Fn::If"]) return inside(value["Fn::If"][holds.includes(value["Fn::If"][0]) ? 1 : 2]);
  if (value["Fn::Sub"]) return value["Fn::Sub"].replace(/\$\{([^}.]+)(\.Arn)?\}/g, (_, name) => PSEUDO[name] ?? arn(name));
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name === USE ? ALIAS : name, inside(member)]));
};

const functions = Object.keys(Resources).filter((name) => Resources[name].Type === "AWS::Lambda::Function");
const roleOf = (name) => Resources[name].Properties.Role["Fn::GetAtt"][0];
/** Returns the ARN by which a function is called: its alias's ARN if it has an alias. */
const callable = (name) => (Resources[`${name}Aliaslive`] ? arn(`${name}Aliaslive`) : arn(name));
/** Returns a role's own policies, and the policies of the template that are attached to the role. */
const policiesOf = (name, holds) => {
  const { Policies, ManagedPolicyArns = [] } = Resources[roleOf(name)].Properties;
  const managed = ManagedPolicyArns.map(({ Ref }) => ({ PolicyName: Ref, ...Resources[Ref].Properties }));
  return [...Policies, ...managed].map(({ PolicyName, PolicyDocument }) => ({
    name: PolicyName,
    policy: resolved(PolicyDocument, holds),
  }));
};

/** Returns whether IAM allows a function this request. */
async function allows(name, action, resource, contextVariables, { resourcePolicy, more = [], holds = [] } = {}) {
  const request = {
    principal: arn(roleOf(name)),
    action,
    resource: { resource, accountId: ACCOUNT },
    contextVariables: { "aws:PrincipalArn": arn(roleOf(name)), ...contextVariables },
  };
  const answer = await runSimulation(
    { request, identityPolicies: [...policiesOf(name, holds), ...more], serviceControlPolicies: [], resourceControlPolicies: [], resourcePolicy },
    {},
  );
  assert.notEqual(answer.resultType, "error", JSON.stringify(answer.errors));
  // A misspelt key would be omitted, and `ForAllValues` would be true.
  assert.deepEqual(answer.result?.ignoredContextKeys ?? [], []);
  return answer.overallResult === "Allowed";
}

/** Returns a function's rows of the table: for each kind of item, the allowed actions. */
function rowsOf(name) {
  const rows = new Map();
  for (const line of MAY[name].split("\n").filter((line) => line.trim())) {
    const [table, kind, ...rights] = line.trim().split(/\s+/);
    const place = `${table} ${kind}`;
    rows.set(place, [...(rows.get(place) ?? []), ...rights.map(right)]);
  }
  return rows;
}

function right(text) {
  const [, tx, action, attributes] = /^(tx:)?(\w+)(?:\((.*)\))?$/.exec(text);
  return { action, inTransaction: tx !== undefined, attributes: attributes?.split(",") };
}

const some = (kind) => (kind.endsWith("#") ? `${kind}1` : kind);
const ANY_ATTRIBUTES = ["pk", "sk", "total", "amt", "keys", "st"];

function context(keys, { within, attributes = ANY_ATTRIBUTES } = {}) {
  return {
    ...(keys && { "dynamodb:LeadingKeys": keys }),
    ...(within && { "dynamodb:EnclosingOperation": "TransactWriteItems" }),
    "dynamodb:Attributes": attributes,
  };
}

test("the table names every function", () => {
  assert.deepEqual(Object.keys(MAY).sort(), functions.sort());
});

for (const name of functions) {
  test(`${name} may do with items what the table says, and nothing else`, async () => {
    const rows = rowsOf(name);
    const wrong = [];
    const ask = async (told, expected, action, resource, variables) => {
      if ((await allows(name, `dynamodb:${action}`, resource, variables)) !== expected) {
        wrong.push(`${expected ? "denied" : "allowed"}: ${told}`);
      }
    };
    for (const [table, kinds] of Object.entries(ITEMS)) {
      const scans = (rows.get(`${table} *`) ?? []).some(({ action }) => action === "Scan");
      await ask(`Scan ${table}`, scans, "Scan", arn(table), {});
      for (const action of [...READS, ...WRITES]) {
        const within = TRANSACTED.includes(action);
        await ask(`${action} ${table} without a key`, false, action, arn(table), context(undefined, { within }));
        for (const kind of kinds) {
          const rights = (rows.get(`${table} ${kind}`) ?? []).filter((right) => right.action === action);
          const place = `${action} ${table} ${kind}`;
          for (const within of TRANSACTED.includes(action) ? [false, true] : [false]) {
            const given = rights.filter((right) => within || !right.inTransaction);
            const free = given.some((right) => !right.attributes);
            const told = `${place}${within ? " in a transaction" : ""}`;
            await ask(told, free, action, arn(table), context([some(kind)], { within }));
            for (const { attributes } of given.filter((right) => right.attributes)) {
              await ask(`${told} ${attributes}`, true, action, arn(table), context([some(kind)], { within, attributes }));
              const more = [...attributes, "total"];
              await ask(`${told} ${more}`, false, action, arn(table), context([some(kind)], { within, attributes: more }));
            }
          }
          if (rights.length > 0) {
            const both = context([some(kind), "Z#1"], { within, attributes: rights[0].attributes });
            await ask(`${place} beside another's`, false, action, arn(table), both);
          }
        }
      }
    }
    for (const index of ["hold", "owner"]) {
      const rights = rows.get(`LedgerTable/index/${index} *`) ?? [];
      for (const action of ["Query", "Scan"]) {
        const expected = rights.some((right) => right.action === action);
        await ask(`${action} ${index}`, expected, action, `${arn("LedgerTable")}/index/${index}`, {});
      }
    }
    assert.deepEqual(wrong, []);
  });

  test(`${name} reads its own secrets, and neither it nor a role that IAM allows everything writes one`, async () => {
    const everything = [{ name: "wide", policy: { Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "*", Resource: "*" }] } }];
    const secrets = Object.keys(Resources).filter((each) => Resources[each].Type === "AWS::SecretsManager::Secret");
    assert.deepEqual(Object.keys(READERS).sort(), secrets.sort());
    for (const secret of secrets) {
      const [policy] = Object.values(Resources).filter(
        ({ Type, Properties }) => Type === "AWS::SecretsManager::ResourcePolicy" && Properties.SecretId.Ref === secret,
      );
      assert.ok(policy, `${secret} has a policy`);
      const resourcePolicy = resolved(policy.Properties.ResourcePolicy);
      const ask = (action, more) => allows(name, `secretsmanager:${action}`, arn(secret), {}, { resourcePolicy, more });
      const isReader = READERS[secret].includes(name);
      assert.equal(await ask("GetSecretValue"), isReader, `${name} reads ${secret}`);
      // The policies protect the signing keys and the nonce key even from a role with too many permissions.
      assert.equal(await ask("GetSecretValue", everything), isReader, `${name} with everything reads ${secret}`);
      for (const action of SECRET_WRITES) {
        assert.equal(await ask(action, everything), false, `${name} with everything: ${action} ${secret}`);
      }
    }
  });
}

test("with a writer of secrets nobody else writes one, except the account's root", async () => {
  const everything = [{ name: "wide", policy: { Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "*", Resource: "*" }] } }];
  const { Statement } = resolved(Resources.NonceKeyPolicy.Properties.ResourcePolicy, ["HasSecretsWriter"]);
  const rule = Statement.find(({ Sid }) => Sid === "WritersAlone");
  const root = `arn:aws:iam::${ACCOUNT}:root`;
  const resourcePolicy = { Version: "2012-10-17", Statement: [rule] };
  for (const [principal, expected] of [[WRITER, true], [root, true], [`arn:aws:iam::${ACCOUNT}:role/Administrators`, false]]) {
    for (const action of SECRET_WRITES) {
      const variables = { "aws:PrincipalArn": principal };
      const more = { resourcePolicy, more: everything };
      assert.equal(await allows("PaymentsFunction", `secretsmanager:${action}`, arn("NonceKeySecret"), variables, more), expected, principal);
    }
  }
});

test("a read of some attributes names them", async () => {
  const asked = context(["A#1"], { attributes: ["pk", "sk"] });
  for (const [select, expected] of [["SPECIFIC_ATTRIBUTES", true], ["ALL_ATTRIBUTES", false]]) {
    const variables = { ...asked, "dynamodb:Select": select };
    assert.equal(await allows("EventsFunction", "dynamodb:BatchGetItem", arn("LedgerTable"), variables), expected, select);
  }
});

test("a function uses the queues that the table says, and as it says", async () => {
  for (const [queue, rights] of Object.entries(QUEUES)) {
    for (const name of functions) {
      for (const action of QUEUE_ACTIONS) {
        const expected = (rights[name] ?? []).includes(action);
        assert.equal(await allows(name, `sqs:${action}`, arn(queue), {}), expected, `${name} ${action} ${queue}`);
      }
    }
  }
});

test("a function uses the log as the table says, and no other object", async () => {
  const actions = ["DeleteObject", "DeleteObjectVersion", "GetObject", "PutObject", "PutObjectAcl"];
  const prefixes = [...LOG.EventsFunction.GetObject, "other/"];
  for (const name of functions) {
    for (const action of actions) {
      for (const prefix of name === "EventsFunction" ? prefixes.slice(0, -1) : prefixes) {
        const object = `${arn("LogBucket")}/${prefix}${prefix.endsWith("/") ? "x" : ""}`;
        const may = LOG[name]?.[action]?.includes(prefix) ?? false;
        assert.equal(await allows(name, `s3:${action}`, object, {}), may, `${name} ${action} ${prefix}`);
      }
    }
    for (const action of ["DeleteBucket", "ListBucket", "PutBucketPolicy", "PutBucketVersioning", "PutLifecycleConfiguration"]) {
      const may = action === "ListBucket" && LOG[name]?.GetObject !== undefined;
      assert.equal(await allows(name, `s3:${action}`, arn("LogBucket"), {}), may, `${name} ${action}`);
    }
  }
});

test("only events writes the archive, and nobody deletes or unlocks an object of it", async () => {
  const actions = [
    "BypassGovernanceRetention", "DeleteObject", "DeleteObjectVersion", "GetObject", "PutObject", "PutObjectAcl",
    "PutObjectLegalHold", "PutObjectRetention",
  ];
  for (const holds of [["HasArchive"], []]) {
    for (const name of functions) {
      for (const action of actions) {
        for (const key of ["statements/x", "other/x"]) {
          const object = `${arn("ArchiveBucket")}/${key}`;
          const may = holds.length > 0 && name === "EventsFunction" && key === "statements/x"
            && ["GetObject", "PutObject"].includes(action);
          assert.equal(await allows(name, `s3:${action}`, object, {}, { holds }), may, `${name} ${action} ${key} ${holds}`);
        }
      }
      for (const action of ["DeleteBucket", "ListBucket", "PutBucketObjectLockConfiguration", "PutBucketPolicy"]) {
        assert.equal(await allows(name, `s3:${action}`, arn("ArchiveBucket"), {}, { holds }), false, `${name} ${action}`);
      }
    }
  }
});

test("only events signs by the key of statements, and only digests", async () => {
  const digest = { "kms:MessageType": "DIGEST", "kms:SigningAlgorithm": "ECDSA_SHA_256" };
  const requests = [
    ["Sign", digest, true],
    ["Sign", { ...digest, "kms:MessageType": "RAW" }, false],
    ["GetPublicKey", {}, true],
    ["CreateGrant", {}, false],
    ["PutKeyPolicy", {}, false],
    ["ScheduleKeyDeletion", {}, false],
  ];
  // The policy that KMS gives to a key by default.
  const root = { AWS: `arn:aws:iam::${ACCOUNT}:root` };
  const resourcePolicy = { Version: "2012-10-17", Statement: [{ Effect: "Allow", Principal: root, Action: "kms:*", Resource: "*" }] };
  for (const holds of [["HasStatementsKey"], []]) {
    for (const name of functions) {
      for (const [action, variables, may] of requests) {
        const expected = may && holds.length > 0 && name === "EventsFunction";
        const told = `${name} ${action} ${holds}`;
        const asked = { holds, resourcePolicy };
        assert.equal(await allows(name, `kms:${action}`, STATEMENTS_KEY, variables, asked), expected, told);
      }
    }
  }
});

test("a function invokes those that it asks, and no other", async () => {
  for (const [invokes, holds] of [[INVOKES, []], [INVOKES_FOR_OPERATORS, ["OperatorsActInBrowser"]]]) {
    for (const name of functions) {
      for (const other of functions) {
        for (const action of ["InvokeFunction", "InvokeAsync", "UpdateFunctionCode", "UpdateFunctionConfiguration"]) {
          const expected = action === "InvokeFunction" && (invokes[name] ?? []).includes(other);
          const told = `${name} ${action} ${other} ${holds}`;
          assert.equal(await allows(name, `lambda:${action}`, callable(other), {}, { holds }), expected, told);
          if (callable(other) === arn(other)) continue;
          for (const version of ["", ":$LATEST", ":1"]) {
            assert.equal(await allows(name, `lambda:${action}`, arn(other) + version, {}, { holds }), false, told + version);
          }
        }
      }
    }
  }
});

test("the role of deployments moves the three aliases, and does nothing else", async () => {
  const { AssumeRolePolicyDocument, Policies } = Resources.CanaryRole.Properties;
  assert.deepEqual(AssumeRolePolicyDocument.Statement.map(({ Principal }) => Principal), [{ Service: "codedeploy.amazonaws.com" }]);
  const identityPolicies = Policies.map(({ PolicyName, PolicyDocument }) => ({ name: PolicyName, policy: resolved(PolicyDocument) }));
  const may = async (action, resource) => {
    const request = { principal: arn("CanaryRole"), action, resource: { resource, accountId: ACCOUNT }, contextVariables: {} };
    const answer = await runSimulation({ request, identityPolicies, serviceControlPolicies: [], resourceControlPolicies: [] }, {});
    assert.notEqual(answer.resultType, "error", JSON.stringify(answer.errors));
    return answer.overallResult === "Allowed";
  };
  for (const name of functions) {
    for (const address of new Set([arn(name), callable(name)])) {
      for (const action of ["GetAlias", "UpdateAlias"]) {
        assert.equal(await may(`lambda:${action}`, address), callable(name) !== arn(name), `${action} ${address}`);
      }
      for (const action of ["InvokeFunction", "UpdateFunctionCode", "UpdateFunctionConfiguration", "DeleteAlias", "CreateAlias", "AddPermission"]) {
        assert.equal(await may(`lambda:${action}`, address), false, `${action} ${address}`);
      }
    }
  }
  assert.equal(await may("cloudwatch:DescribeAlarms", "*"), true);
  assert.equal(await may("iam:PassRole", arn("PaymentsRole")), false);
});

test("events and history read the streams, and events alone publishes", async () => {
  const tables = Object.keys(Resources).filter((name) => Resources[name].Type === "AWS::DynamoDB::Table");
  for (const name of functions) {
    for (const table of tables) {
      for (const action of ["DescribeStream", "GetRecords", "GetShardIterator"]) {
        const expected = (STREAMED[name] ?? []).includes(table);
        assert.equal(await allows(name, `dynamodb:${action}`, arn(table) + STREAM, {}), expected, `${name} ${action} ${table}`);
      }
    }
    const tells = name === "EventsFunction";
    assert.equal(await allows(name, "events:PutEvents", arn("EventBus"), {}), tells, `${name} tells`);
    assert.equal(await allows(name, "sqs:SendMessage", arn("EventsUntold"), {}), name in STREAMED, `${name} gives up`);
    for (const action of ["events:DeleteEventBus", "events:DescribeEventBus"]) {
      assert.equal(await allows(name, action, arn("EventBus"), {}), false, `${name} ${action}`);
    }
    for (const action of ["sqs:DeleteMessage", "sqs:PurgeQueue", "sqs:ReceiveMessage"]) {
      assert.equal(await allows(name, action, arn("EventsUntold"), {}), false, `${name} ${action}`);
    }
  }
});

test("where KMS has the wallets' keys, payments alone signs by them and people makes them, each those of its stack", async () => {
  const everything = [{ name: "wide", policy: { Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "*", Resource: "*" }] } }];
  const holds = ["CustodyIsKms"];
  const { WALLET_KEY_POLICY: text } = Resources.PeopleFunction.Properties.Environment.Variables;
  const resourcePolicy = JSON.parse(resolved(text, holds));
  const key = `arn:aws:kms:${REGION}:${ACCOUNT}:key/22222222-2222-4222-8222-222222222222`;
  const ours = { "aws:ResourceTag/purser-stack": "dev" };
  const digest = { "kms:MessageType": "DIGEST", "kms:SigningAlgorithm": "ECDSA_SHA_256" };
  const made = { "aws:RequestTag/purser-stack": "dev", "aws:RequestTag/purser-agent": "a", "kms:KeySpec": "ECC_SECG_P256K1", "kms:KeyUsage": "SIGN_VERIFY" };
  for (const name of functions) {
    const ask = (action, context, more = [], modes = holds) =>
      allows(name, `kms:${action}`, key, context, { resourcePolicy, more, holds: modes });
    const [pays, governs] = [name === "PaymentsFunction", name === "PeopleFunction"];
    assert.equal(await ask("Sign", { ...ours, ...digest }), pays, `${name} signs`);
    assert.equal(await ask("Sign", { ...ours, ...digest }, everything), pays, `${name} with everything signs`);
    assert.equal(await ask("Sign", { ...ours, ...digest }, [], []), false, `${name} signs by a key where the seed does`);
    assert.equal(await ask("Sign", { ...ours, ...digest, "kms:MessageType": "RAW" }), false, name);
    assert.equal(await ask("Sign", { "aws:ResourceTag/purser-stack": "other", ...digest }), false, name);
    assert.equal(await ask("Sign", digest), false, name);
    assert.equal(await ask("GetPublicKey", ours), pays, name);
    assert.equal(await ask("TagResource", made), governs, name);
    for (const tag of ["purser-agent", "purser-stack"]) {
      for (const stack of ["dev", "other"]) {
        const tagged = { ...made, [`aws:ResourceTag/${tag}`]: stack };
        assert.equal(await ask("TagResource", tagged), false, `${name} tags a key with a ${tag} of ${stack} again`);
      }
    }
    for (const action of ["CreateGrant", "DeleteImportedKeyMaterial", "DisableKey", "PutKeyPolicy", "ScheduleKeyDeletion", "UntagResource", "Verify"]) {
      assert.equal(await ask(action, { ...ours, ...made }), false, `${name} ${action}`);
    }
    const create = (context) => allows(name, "kms:CreateKey", "*", context, { holds });
    assert.equal(await create(made), governs, `${name} makes a key`);
    for (const missing of Object.keys(made)) {
      const { [missing]: _, ...less } = made;
      assert.equal(await create(less), false, `${name} makes a key without ${missing}`);
    }
    assert.equal(await create({ ...made, "kms:KeySpec": "SYMMETRIC_DEFAULT" }), false, name);
    const seed = await allows(name, "secretsmanager:GetSecretValue", arn("WalletSeedSecret"), {}, { holds });
    assert.equal(seed, false, `${name} reads a seed where KMS has the keys`);
  }
});

test("people encrypts the secrets that are kept for people, webhooks and notices each decrypt what is theirs, and nobody else", async () => {
  const everything = [{ name: "wide", policy: { Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "*", Resource: "*" }] } }];
  const resourcePolicy = resolved(Resources.WebhookSecretsKey.Properties.KeyPolicy);
  const used = (use) => ({ [ALIAS]: use });
  for (const name of functions) {
    const ask = (action, context, more = []) =>
      allows(name, `kms:${action}`, arn("WebhookSecretsKey"), context, { resourcePolicy, more });
    const [encrypts, signs, notifies] = ["PeopleFunction", "WebhooksFunction", "NoticesFunction"].map((each) => each === name);
    for (const [use, decrypts] of [["webhook", signs], ["notice", notifies]]) {
      assert.equal(await ask("Encrypt", used(use)), encrypts, `${name} encrypts for ${use}`);
      assert.equal(await ask("Decrypt", used(use)), decrypts, `${name} decrypts for ${use}`);
      // Other roles cannot decrypt, even with too many permissions.
      assert.equal(await ask("Decrypt", used(use), everything), signs || notifies, `${name} with everything decrypts`);
    }
    for (const action of ["CreateGrant", "ReEncryptFrom"]) {
      assert.equal(await ask(action, {}, everything), signs || notifies, `${name} with everything: ${action}`);
    }
    for (const action of ["Decrypt", "Encrypt"]) {
      for (const context of [{}, used("other")]) {
        assert.equal(await ask(action, context), false, `${name} ${action} ${JSON.stringify(context)}`);
      }
    }
    for (const action of ["CreateGrant", "DisableKey", "GenerateDataKey", "PutKeyPolicy", "ReEncryptFrom", "ScheduleKeyDeletion"]) {
      assert.equal(await ask(action, {}), false, `${name} ${action}`);
    }
  }
});

test("only DynamoDB and Secrets Manager decrypt in a function's name, and each only for who uses it", async () => {
  for (const name of functions) {
    const via = (service) => ({ "kms:ViaService": `${service}.${REGION}.amazonaws.com` });
    const ask = (action, key, variables) => {
      const resourcePolicy = resolved(Resources[key].Properties.KeyPolicy);
      return allows(name, `kms:${action}`, arn(key), variables, { resourcePolicy });
    };
    const readsTables = MAY[name].trim() !== "";
    const readsSecrets = Object.values(READERS).some((readers) => readers.includes(name));
    assert.equal(await ask("Decrypt", "DataKey", via("dynamodb")), readsTables, `${name} dynamodb`);
    assert.equal(await ask("Decrypt", "SecretsKey", via("secretsmanager")), readsSecrets, `${name} secretsmanager`);
    assert.equal(await ask("Decrypt", "DataKey", via("secretsmanager")), false, name);
    assert.equal(await ask("Decrypt", "SecretsKey", via("dynamodb")), false, name);
    for (const key of ["DataKey", "SecretsKey"]) {
      assert.equal(await ask("Decrypt", key, {}), false, name);
      assert.equal(await ask("Encrypt", key, via("dynamodb")), false, name);
    }
  }
});

const items = (table, kinds, actions) => kinds.flatMap((kind) => actions.map((action) => ["item", table, kind, action]));
const all = (table, actions) => items(table, ITEMS[table], actions);
const inLedger = (...kinds) => items("LedgerTable", kinds, WRITES);
const WALLET_KEYS = [["secret", "WalletSeedSecret"], ["key", "Sign"]];
const useQueueOrFunction = () => [
  ...Object.keys(QUEUES).flatMap((queue) => QUEUE_ACTIONS.map((action) => ["queue", queue, action])),
  ...functions.map((other) => ["function", other]),
];

/** The meaning, in terms of IAM, of each text of a `cannot` in docs/guarantees.toml. */
const CLAIMS = {
  "write to a table": () => Object.keys(ITEMS).flatMap((table) => all(table, WRITES)),
  "write to a table, except request counters": () =>
    Object.keys(ITEMS).filter((table) => table !== "ThrottleTable").flatMap((table) => all(table, WRITES)),
  "use a table, secret, queue or function": () => [
    ...Object.keys(ITEMS).flatMap((table) => all(table, [...READS, ...WRITES])),
    ...Object.keys(READERS).map((secret) => ["secret", secret]),
    ...useQueueOrFunction(),
    ...WALLET_KEYS,
  ],
  "read or write a table, except counters and kept responses": () =>
    Object.keys(ITEMS).filter((table) => table !== "ThrottleTable").flatMap((table) => all(table, [...READS, ...WRITES])),
  "read a secret, except client address keys": () =>
    Object.keys(READERS).filter((secret) => !secret.endsWith("ClientIpKeySecret")).map((secret) => ["secret", secret]),
  "read a secret, except the OAuth secret": () =>
    Object.keys(READERS).filter((secret) => secret !== "OauthKeySecret").map((secret) => ["secret", secret]),
  "use a queue or function": useQueueOrFunction,
  "verify a payee": () => items("UsageTable", ["PAYEES#"], WRITES),
  "make a wallet's key": () => [["key", "CreateKey"]],
  "read the ledger": () => all("LedgerTable", READS),
  "read a settlement": () => items("LedgerTable", ["S#"], READS),
  "write to the ledger": () => all("LedgerTable", WRITES),
  // A write that includes other attributes is denied.
  "write to the ledger, except agent status and whether a policy is enabled": () => all("LedgerTable", WRITES),
  "write to the catalog": () => all("CatalogTable", WRITES),
  "write a service": () => items("CatalogTable", ["CHUNK#", "OBJECT", "SLUG#", "SVC#", "VERSION"], WRITES),
  "write a decision": () => all("DecisionsTable", WRITES),
  "update or delete a decision": () =>
    all("DecisionsTable", WRITES.filter((action) => action !== "PutItem")),
  "write an agent": () => inLedger("A#"),
  "write an agent or policy": () => inLedger("A#", "P#"),
  "write a window or settlement": () => inLedger("B#", "I#", "L#", "S#"),
  "write a window's sum": () => inLedger("B#", "L#"),
  "write a settlement or claim": () => inLedger("I#", "S#", "X#"),
  "change what a payment is": () => inLedger("S#", "I#"),
  // Only `internal` writes freezes. The function's code ensures that an action in the browser does not change a freeze
  // that was set with a token.
  "end or change a freeze that was set with a token": () => inLedger("FREEZES#"),
  "read a webhook's secret": () => items("WebhooksTable", ["K#"], READS),
  "change a webhook or webhook secret": () => items("WebhooksTable", ["K#", "P#"], WRITES),
};

/** What only `payments` can do (docs/guarantees.md §8). */
const PAYMENTS_ONLY = {
  "use wallet keys": () => WALLET_KEYS,
  "move a wallet to another agent": () => inLedger("ATTESTED#"),
  "write a withdrawal address or delay": () => inLedger("PO#"),
};

test("a compromised function can't do what guarantees.toml says it can't", async () => {
  const read = (name) => readFileSync(new URL(`../../../docs/${name}`, import.meta.url), "utf8");
  const [, section] = read("guarantees.md").split("\n## 8. ");
  const functionRows = read("guarantees.toml").matchAll(/^\[function\.(\w+)\]\ncan = .*\ncannot = (\[.*\])$/gm);
  const rows = new Map([...functionRows].map(([, name, cannot]) => [name, JSON.parse(cannot)]));
  const names = new Map(functions.map((name) => [name.replace("Function", "").toLowerCase(), name]));
  assert.deepEqual([...rows.keys()], [...names.keys()].sort(), "one row for each function");
  const key = `arn:aws:kms:${REGION}:${ACCOUNT}:key/22222222-2222-4222-8222-222222222222`;
  const inKms = { holds: ["CustodyIsKms"] };
  const wallets = {
    Sign: { "aws:ResourceTag/purser-stack": "dev", "kms:MessageType": "DIGEST", "kms:SigningAlgorithm": "ECDSA_SHA_256" },
    CreateKey: {
      "aws:RequestTag/purser-stack": "dev", "aws:RequestTag/purser-agent": "a",
      "kms:KeySpec": "ECC_SECG_P256K1", "kms:KeyUsage": "SIGN_VERIFY",
    },
  };
  const isAllowed = async (name, [kind, ...asked]) => {
    if (kind === "secret") return allows(name, "secretsmanager:GetSecretValue", arn(asked[0]), {});
    if (kind === "queue") return allows(name, `sqs:${asked[1]}`, arn(asked[0]), {});
    if (kind === "function") return allows(name, "lambda:InvokeFunction", callable(asked[0]), {});
    if (kind === "key") {
      const resource = asked[0] === "CreateKey" ? "*" : key;
      return allows(name, `kms:${asked[0]}`, resource, wallets[asked[0]], inKms);
    }
    const [items, leading, action] = asked;
    const ask = (within) => allows(name, `dynamodb:${action}`, arn(items), context([some(leading)], { within }));
    return (await ask(false)) || (TRANSACTED.includes(action) && (await ask(true)));
  };
  const wrong = [];
  const ofPayments = Object.keys(PAYMENTS_ONLY).join(", ").replace(/, (?!.*, )/, ", or ");
  assert.ok(section.replaceAll("\n", " ").includes(`Only \`payments\` can ${ofPayments}.`), ofPayments);
  const meanings = { ...CLAIMS, ...PAYMENTS_ONLY };
  for (const [row, claims] of rows) {
    for (const claim of row === "payments" ? claims : [...claims, ...Object.keys(PAYMENTS_ONLY)]) {
      assert.ok(meanings[claim], `\`${row}\`: no test for "${claim}"`);
      for (const asked of meanings[claim]()) {
        if (await isAllowed(names.get(row), asked)) wrong.push(`${row} can ${claim}: ${asked.join(" ")}`);
      }
    }
  }
  assert.deepEqual(wrong, []);
});
