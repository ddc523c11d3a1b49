-- The status follows kstatus: Reconciling and Stalled are present only while they are true, and Ready is True only
-- when neither is, for the generation that observedGeneration names.
-- Degraded is kept for what a person must mend, because it ends a running sync at once.

local function waiting(message)
  return { status = "Progressing", message = message }
end

if obj.status == nil or obj.status.conditions == nil then
  return waiting("Waiting for the operator to see it")
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  return waiting("Waiting for the operator to see the change")
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end

local function told(condition)
  return condition.reason .. ": " .. condition.message
end

local stalled, reconciling, ready = conditions.Stalled, conditions.Reconciling, conditions.Ready
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = told(stalled) }
end
if reconciling ~= nil and reconciling.status == "True" then
  return waiting(told(reconciling))
end
if ready ~= nil and ready.status == "True" then
  return { status = "Healthy", message = told(ready) }
end
return waiting("Waiting for the condition Ready")
