#!/bin/bash
# One machine of DevStack: its settings, then the phases that are given, one argument each.
# Environment: SANDBOX, CHECKOUT, and DEVSTACK_DIR where DevStack itself is to be used.
set -o errexit

export PATH=$SANDBOX/stubs:$PATH
DEST=$SANDBOX/opt/stack DATA_DIR=$SANDBOX/opt/stack/data DEVSTACK_VENV=$SANDBOX/opt/stack/data/venv
SERVICE_PASSWORD='p@ss/word' STACK_USER=$(id -un)
SERVICE_HOST=${SERVICE_HOST:-192.0.2.1} HOST_IP=${HOST_IP:-192.0.2.1}
RABBIT_PASSWORD=secret RABBIT_HOST=$SERVICE_HOST
DEVSTACK_PLUGINS=${DEVSTACK_PLUGINS:-acstor}
ACSTOR_CONF_DIR=$SANDBOX/etc/acstor ACSTOR_APPARMOR_DIR=$SANDBOX/etc/apparmor.d

function note { echo "$*" >>"$SANDBOX/log"; }

# DevStack itself and the stand-in have absolute paths below /etc: those of the sandbox are meant.
function move_configuration {
    local name
    for name in NOVA_CONF NOVA_CPU_CONF CINDER_CONF GLANCE_API_CONF; do
        printf -v "$name" %s "$SANDBOX${!name}"
        mkdir -p "$(dirname "${!name}")"
    done
    SYSTEMD_DIR=$SANDBOX/etc/systemd
    CEILOMETER_CONF_DIR=$SANDBOX/etc/ceilometer CEILOMETER_CONF=$SANDBOX/etc/ceilometer/ceilometer.conf
}

here=$(dirname "$(readlink -f "$0")")
if [[ -n "${DEVSTACK_DIR:-}" ]]; then
    source "$here/real.sh"
else
    source "$here/stand_in.sh"
fi
GITDIR[acstor]=$CHECKOUT
plugin_override_defaults
source_libraries
move_configuration
load_plugin_settings
for phase in "$@"; do
    case $phase in
        settings) declare -p ENABLED_SERVICES CINDER_ENABLED_BACKENDS NOVA_FILTERS ;;
        cinder)  # lib/cinder, once it has read the back-ends
            for backend in ${CINDER_ENABLED_BACKENDS//,/ }; do
                if type "configure_cinder_backend_${backend%%:*}" >/dev/null 2>&1; then
                    "configure_cinder_backend_${backend%%:*}" "${backend##*:}"
                fi
            done
            ;;
        *) run_phase $phase ;;
    esac
done
