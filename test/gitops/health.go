// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package gitops evaluates the health checks in config/gitops as Argo CD and Flux do: the
// scripts in Lua without the libraries that Argo CD leaves out, the expressions in CEL in the
// order of Flux's RFC 0009. It takes objects as they are read from an API server, and gives
// their health. What needs no health check, because of the conventions of kstatus, it
// computes with kstatus itself.
package gitops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/test/install"
)

// Health is that of one object.
type Health struct {
	// Argo is the status that the script gives, Message its message.
	Argo, Message string
	// Flux is what the expressions give: Current, InProgress or Failed; Unknown where one
	// cannot be evaluated, and Flux asks again.
	Flux status.Status
	// KStatus is what tools without a health check find.
	KStatus status.Status
}

// Of is the health of an object.
func Of(object *unstructured.Unstructured) (h Health, err error) {
	var failures [3]error
	h.Argo, h.Message, failures[0] = argo(object)
	h.Flux, failures[1] = flux(object)
	result, err := status.Compute(object)
	if failures[2] = err; err == nil {
		h.KStatus = result.Status
	}
	return h, errors.Join(failures[:]...)
}

func read(name string, into any) error {
	text, err := os.ReadFile(filepath.Join(install.Root(), "config", "gitops", name))
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text, into)
}

// argo runs the script for the kind of the object.
func argo(object *unstructured.Unstructured) (health, message string, err error) {
	var config corev1.ConfigMap
	if err := read("argocd-cm.yaml", &config); err != nil {
		return "", "", err
	}
	kind := object.GroupVersionKind()
	script, has := config.Data[fmt.Sprintf("resource.customizations.health.%s_%s", kind.Group, kind.Kind)]
	if !has {
		return "", "", fmt.Errorf("there is no script for %s", kind)
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return "", "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	result, is := state.Get(-1).(*lua.LTable)
	if !is {
		return "", "", fmt.Errorf("the script gives %s; expected a table", state.Get(-1).Type())
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message")), nil
}

// luaValue is a value that was decoded from JSON, in Lua.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := state.NewTable()
		for _, item := range v {
			table.Append(luaValue(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}

// expressions are those of one kind.
type expressions struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	InProgress string `json:"inProgress"`
	Failed     string `json:"failed"`
	Current    string `json:"current"`
}

// flux evaluates the expressions for the kind of the object.
func flux(object *unstructured.Unstructured) (status.Status, error) {
	var kustomization struct {
		APIVersion, Kind string
		Metadata         any
		Spec             struct {
			Interval, Timeout, Path string
			Prune, Wait             bool
			SourceRef               any
			HealthCheckExprs        []expressions
		}
	}
	if err := read("flux.yaml", &kustomization); err != nil {
		return "", err
	}
	for _, e := range kustomization.Spec.HealthCheckExprs {
		if schema.FromAPIVersionAndKind(e.APIVersion, e.Kind).GroupKind() == object.GroupVersionKind().GroupKind() {
			return e.evaluate(object)
		}
	}
	return "", fmt.Errorf("there are no expressions for %s", object.GroupVersionKind())
}

func (e expressions) evaluate(object *unstructured.Unstructured) (status.Status, error) {
	observed, has, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if err != nil || has && observed != object.GetGeneration() {
		return status.InProgressStatus, err
	}
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders())
	if err != nil {
		return "", err
	}
	for _, c := range []struct {
		text string
		then status.Status
	}{{e.InProgress, status.InProgressStatus}, {e.Failed, status.FailedStatus}, {e.Current, status.CurrentStatus}} {
		if c.text == "" {
			continue
		}
		parsed, issues := env.Parse(c.text)
		if issues.Err() != nil {
			return "", fmt.Errorf("%s: %w", c.text, issues.Err())
		}
		program, err := env.Program(parsed)
		if err != nil {
			return "", err
		}
		result, _, err := program.Eval(object.Object)
		if err != nil && strings.Contains(err.Error(), "no such attribute(s): status") {
			return status.UnknownStatus, nil
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.text, err)
		}
		if is, isBool := result.Value().(bool); !isBool {
			return "", fmt.Errorf("%s gives %v; expected true or false", c.text, result.Value())
		} else if is {
			return c.then, nil
		}
	}
	return status.InProgressStatus, nil
}
