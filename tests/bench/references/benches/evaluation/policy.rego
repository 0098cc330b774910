# The checks in Rego, over the agent's rules and policies as data.
package purser

policy := data.policies[input.service]

failed contains "service_enabled" if not policy

failed contains "agent_active" if data.agent.status != "active"

failed contains "enabled_operations" if {
	policy
	not input.operation in policy.operations
}

failed contains "allowed_domains" if {
	input.fetches
	policy
	not host_allowed
}

host_allowed if {
	some host in input.hosts
	host in policy.domains
}

failed contains "max_payment_units" if input.amount > input.max_payment

failed contains "max_per_call_units" if input.amount > policy.max_per_call

failed contains "category_block" if {
	some categories in data.agent.blocks
	some category in input.categories
	category in categories
}

failed contains "vendor_allowlist" if {
	some allowed in data.agent.allowlists
	not input.service in allowed.services
	not input.pay_to in allowed.wallets
}

failed contains "vendor_allowlist" if not input.pay_to in input.payees

failed contains "vendor_allowlist" if input.pay_to == data.agent.wallet

failed contains "vendor_allowlist" if input.amount > input.max_price

failed contains "budget_limit" if {
	some rule, limit in data.agent.budgets
	input.spent[rule] + input.amount > limit
}

failed contains "max_per_day_units" if input.spent_today + input.amount > policy.max_per_day

failed contains "approval" if {
	not input.approved
	input.amount > policy.approval_above
}

failed contains "approval" if {
	not input.approved
	policy
	some asked in data.agent.approvals
	input.amount > asked.above
	concerns(asked)
}

concerns(asked) if {
	asked.services
	input.service in asked.services
}

concerns(asked) if {
	not asked.services
	some category in input.categories
	category in asked.categories
}

failed contains "usdc_balance" if input.amount > input.balance
