// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package release makes what a version of Comity consists of: programs, the
// container image, the archives of the kubectl plugin and the krew manifest.
//
// It takes a checkout and a version, and gives files and an image that depend on
// nothing but the commit and the Go toolchain: all times are the commit's, all
// owners are numbers, all lists are in a fixed order. The flags of the compiler
// are defined here and nowhere else. It never pushes anything, and nothing that
// ships imports it.
package release
