package comity.policies.scope

warn contains {"msg": sprintf("the export goes to %s only", [concat(", ", input.effectiveScope.clusters)])} if {
	not input.effectiveScope.all
	input.published
}
