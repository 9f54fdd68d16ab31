#!/bin/bash
# DevStack's entry: source plugin.sh MODE [PHASE]. See README.rst and settings.

_XTRACE_ACSTOR_PLUGIN=$(set +o | grep xtrace)
set +o xtrace

# shellcheck source=devstack/lib/acstor
source "$ACSTOR_DIR/devstack/lib/acstor"
# shellcheck source=devstack/lib/versions
source "$ACSTOR_DIR/devstack/lib/versions"
# shellcheck source=devstack/lib/dashboard
source "$ACSTOR_DIR/devstack/lib/dashboard"
# shellcheck source=devstack/lib/services
source "$ACSTOR_DIR/devstack/lib/services"
# shellcheck source=devstack/lib/dependencies
source "$ACSTOR_DIR/devstack/lib/dependencies"

if is_acstor_enabled; then
    case "$1 ${2:-}" in
        "stack pre-install")
            echo_summary "Preparing the system for ACStor"
            preinstall_acstor
            ;;
        "stack install")
            echo_summary "Installing ACStor"
            install_acstor
            ;;
        "stack post-config")
            echo_summary "Configuring ACStor"
            configure_acstor
            configure_acstor_dependencies
            create_acstor_accounts
            init_acstor
            if has_acstor_dashboard; then
                configure_acstor_dashboard
            fi
            ;;
        "stack extra")
            echo_summary "Starting ACStor"
            start_acstor
            ;;
        "unstack ")
            stop_acstor
            ;;
        "clean ")
            cleanup_acstor
            ;;
    esac
fi

$_XTRACE_ACSTOR_PLUGIN
