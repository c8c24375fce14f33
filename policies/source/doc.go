// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package source reads policies in the forms in which their authors keep them: folders
// of Rego, such as those in policies/, and manifests of ExportPolicies.
//
// It takes paths and gives Policies: the ExportPolicy with what belongs to it, tests
// and fixtures. It is strict: a field that an ExportPolicy does not have, a folder
// without a module and a path without a policy are errors that name the file. It
// compiles nothing and writes nothing.
//
// A folder of a policy has the name of the ExportPolicy, and in it
//
//	policy.rego       the module (spec.rego)
//	params.yaml       spec.parameters; optional
//	policy.yaml       every other field of the spec, such as stage and existing; optional
//	*_test.rego       tests of the module, in any package; optional
//	fixtures/*.yaml   manifests for the tests; optional
//
// A folder named lib without a module is passed over: it is the library of Comity.
package source
